import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A step with a producer of transactions, see Steps.
 *
 * run_script group, script, checks, millis, traces   script: [{body, local, checks}]. Each message with `local` is sent, key
 *     "k-BODY", tag "t"; `local` is the state of its local transaction, or "throw". `checks` are the answers to the questions
 *     of the broker about it, one after the other; the last one stays. Ends `millis` after `checks` questions, or after
 *     40 s. Answers with {sent: [[body, status, state, no id but the message's]], checks: {body: [state]},
 *     seen: what the first question about each message brought}. With `traces`, message trace goes to that topic.
 */
final class LocalTransactions {
    private LocalTransactions() {}

    private static final class Listener implements TransactionListener {
        final Map<String, Map<?, ?>> script = new HashMap<>();
        final Map<String, List<String>> checks = new TreeMap<>();
        final Map<String, Object> seen = new TreeMap<>();
        final AtomicInteger count = new AtomicInteger();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state((String) script.get(text(message)).get("local"));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = text(message);
            List<String> before = checks.computeIfAbsent(body, key -> new ArrayList<>());
            List<?> planned = (List<?>) script.get(body).get("checks");
            String answer = (String) planned.get(Math.min(before.size(), planned.size() - 1));
            before.add(answer);
            seen.putIfAbsent(body, Arrays.asList(message.getTopic(), message.getTags(), message.getKeys(),
                message.getTransactionId().equals(message.getProperty("UNIQ_KEY")), new ArrayList<>(new TreeMap<>(message.getProperties()).keySet())));
            count.incrementAndGet();
            return state(answer);
        }

        private static LocalTransactionState state(String name) {
            if (name.equals("throw")) {
                throw new IllegalStateException("as the script says");
            }
            return LocalTransactionState.valueOf(name);
        }

        private static String text(Message message) {
            return new String(message.getBody(), StandardCharsets.UTF_8);
        }
    }

    static Object play(Context context, String topic, Map<?, ?> command) throws Exception {
        String group = (String) command.get("group");
        String traces = (String) command.get("traces");
        TransactionMQProducer producer = context.ready(traces == null ? new TransactionMQProducer(group)
            : new TransactionMQProducer(null, group, null, true, traces));
        producer.setSendMsgTimeout(8000);
        Listener listener = new Listener();
        producer.setTransactionListener(listener);
        producer.start();
        List<Object> sent = new ArrayList<>();
        try {
            for (Object one : (List<?>) command.get("script")) {
                listener.script.put((String) ((Map<?, ?>) one).get("body"), (Map<?, ?>) one);
            }
            for (Object one : (List<?>) command.get("script")) {
                String body = (String) ((Map<?, ?>) one).get("body");
                if (((Map<?, ?>) one).get("local") != null) {
                    Message message = new Message(topic, "t", "k-" + body, body.getBytes(StandardCharsets.UTF_8));
                    TransactionSendResult result = producer.sendMessageInTransaction(message, null);
                    sent.add(Arrays.asList(body, result.getSendStatus().name(), result.getLocalTransactionState().name(),
                        result.getTransactionId() == null || result.getTransactionId().equals(result.getMsgId())));
                }
            }
            int wanted = ((Number) command.get("checks")).intValue();
            for (long end = System.nanoTime() + 40_000_000_000L; listener.count.get() < wanted && System.nanoTime() < end;) {
                Thread.sleep(20);
            }
            Thread.sleep(((Number) command.get("millis")).intValue());
        } finally {
            producer.shutdown();
        }
        return Context.map("sent", sent, "checks", listener.checks, "seen", listener.seen);
    }
}
