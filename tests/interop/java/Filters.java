import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * RocketMQ's filter module as a judge of SQL92 expressions. Each line of the input is one question: the expression and
 * a property string, both in base64, separated by a blank. The answer is one line: `refused ERROR`, `error ERROR` or
 * `value CLASS TEXT`. ERROR is the simple name of the class and the message in base64; so is TEXT.
 */
final class Filters {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            out.print(answer(text(parts[0]), text(parts[1])) + "\n");
            if (!in.ready()) {
                out.flush();
            }
        }
        out.flush();
    }

    private static String answer(String expression, String properties) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get("SQL92").compile(expression);
        } catch (Throwable e) {
            return "refused " + shown(e);
        }
        try {
            Object value = compiled.evaluate(new Properties(MessageDecoder.string2messageProperties(properties)));
            return value == null ? "value null " : "value " + value.getClass().getSimpleName() + " " + coded("" + value);
        } catch (Throwable e) {
            return "error " + shown(e);
        }
    }

    private static String shown(Throwable e) {
        return e.getClass().getSimpleName() + " " + coded(String.valueOf(e.getMessage()));
    }

    private static String text(String coded) {
        return new String(Base64.getDecoder().decode(coded), StandardCharsets.UTF_8);
    }

    private static String coded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    /** What a broker evaluates an expression on: the properties of one message, all of them strings. */
    private static final class Properties implements EvaluationContext {
        private final Map<String, String> properties;

        Properties(Map<String, String> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(properties);
        }
    }
}
