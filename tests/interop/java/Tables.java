import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Reads tables as a broker does, and writes them as it does: Tables FROM TO [FROM TO ...], folders. Like a broker it reads
 * the .bak of a file that is not JSON. Fields with unknown names are dropped. Run from its source, once for a test.
 */
public final class Tables {
    private static final String[] PACKAGES = {
        "org.apache.rocketmq.remoting.protocol.body.", "org.apache.rocketmq.common.protocol.body.",
        "org.apache.rocketmq.store.schedule."
    };
    private static final String[][] KINDS = {
        {"topics.json", "TopicConfigSerializeWrapper"}, {"subscriptionGroup.json", "SubscriptionGroupWrapper"},
        {"consumerOffset.json", "ConsumerOffsetSerializeWrapper"}, {"delayOffset.json", "DelayOffsetSerializeWrapper"}
    };

    public static void main(String[] args) throws Exception {
        for (int i = 0; i < args.length; i += 2) {
            for (String[] kind : KINDS) {
                Class<?> type = find(kind[1]);
                Path from = Path.of(args[i], kind[0]);
                if (type != null && Files.exists(from)) {
                    byte[] json = RemotingSerializable.toJson(read(from, type), true).getBytes(StandardCharsets.UTF_8);
                    Files.write(Path.of(args[i + 1], kind[0]), json);
                }
            }
        }
    }

    private static Object read(Path file, Class<?> type) throws Exception {
        Path bak = Path.of(file + ".bak");
        try {
            Object table = RemotingSerializable.fromJson(Files.readString(file), type);
            if (table != null || !Files.exists(bak)) {
                return table;
            }
        } catch (RuntimeException e) {
            if (!Files.exists(bak)) {
                throw e;
            }
        }
        return RemotingSerializable.fromJson(Files.readString(bak), type);
    }

    private static Class<?> find(String name) {
        for (String one : PACKAGES) {
            try {
                return Class.forName(one + name);
            } catch (ClassNotFoundException e) {
                continue;
            }
        }
        return null;
    }
}
