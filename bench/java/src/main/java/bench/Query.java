package bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.QueryMessageResult;

/**
 * count look-ups per round in a store with a log of common.write_log, all over the log: the i-th look-up is for
 * message i * 2654435761 modulo total. Keys and times are made outside the clock. records: number of messages found;
 * checksum: the sum of their physical offsets, or (what=time: getOffsetInQueueByTime in queue 0) of the offsets in the
 * queue.
 *
 * <pre>dir= what=key|unique|miss|time total= count=100000 filemib=1024</pre>
 *
 * more: cpu_us of the whole JVM per look-up; first: number of the first look-up of the round.
 */
final class Query implements Round {
    private static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final int PHYSICAL_OFFSET_AT = 28;
    private static final long FIRST_TIME = 1_700_000_000_000L;
    private final DefaultMessageStore store;
    private final String what;
    private final long total;
    private final int count;
    private long next;

    Query(Args args) throws Exception {
        store = Stores.start(args);
        what = args.text("what", "key");
        total = args.number("total", 1);
        count = args.number("count", 100_000);
    }

    @Override
    public Result run() {
        Map<String, Double> more = new TreeMap<>();
        more.put("first", (double) next);
        long records = 0;
        long sum = 0;
        long[] times = new long[count];
        String[] keys = new String[count];
        for (int i = 0; i < count; i++) {
            long n = next++ * 2654435761L % total;
            times[i] = FIRST_TIME + n;
            keys[i] = switch (what) {
                case "key" -> "order-" + n;
                case "unique" -> unique(n);
                default -> "nobody-" + n;
            };
        }
        long cpu = SYSTEM.getProcessCpuTime();
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
            if (what.equals("time")) {
                sum += store.getOffsetInQueueByTime(Stores.TOPIC, 0, times[i]);
                records++;
                continue;
            }
            QueryMessageResult found = store.queryMessage(Stores.TOPIC, keys[i], 32, 0, Long.MAX_VALUE);
            for (ByteBuffer message : found.getMessageBufferList()) {
                sum += message.getLong(message.position() + PHYSICAL_OFFSET_AT);
                records++;
            }
            found.release();
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        more.put("cpu_us", (SYSTEM.getProcessCpuTime() - cpu) / 1e3 / count);
        return new Result(seconds, records, sum, more);
    }

    /** As String.format("%012X") would, without its cost. */
    private static String unique(long n) {
        String hex = Long.toHexString(n).toUpperCase(Locale.ROOT);
        return "7F000001AB12CD34EF56" + "0".repeat(12 - hex.length()) + hex;
    }

    @Override
    public void close() {
        store.shutdown();
    }
}
