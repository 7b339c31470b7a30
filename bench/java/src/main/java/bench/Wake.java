package bench;

import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;

/**
 * One thread puts count messages, 1 to 3 ms apart. Another thread waits for each: the store's MessageArrivingListener wakes
 * it, as for a held pull in a broker, and it calls getMessage. Times are from before putMessage until getMessage returns it.
 *
 * <pre>dir= body=128 count=500 filemib=1024</pre>
 *
 * seconds: of the whole round; records: number of messages; checksum: the end of the queue; more: p50_us, p90_us, p99_us, p999_us, max_us.
 */
final class Wake implements Round {
    private static final int QUEUE = 0;
    private final DefaultMessageStore store;
    private final Maker maker;
    private final int count;
    private final long pauses;
    private final Random random = new Random(17);
    private final AtomicReference<Thread> waiting = new AtomicReference<>();

    Wake(Args args) throws Exception {
        count = args.number("count", 500);
        pauses = 1_000_000;
        maker = new Maker(args, 0);
        store = Stores.start(Stores.make(args, (topic, queueId, offset, tagsCode, time, bitMap, properties) -> {
            LockSupport.unpark(waiting.get());
        }));
    }

    @Override
    public Result run() throws Exception {
        long first = store.getMaxOffsetInQueue(Stores.TOPIC, QUEUE);
        long[] began = new long[count];
        long[] got = new long[count];
        Thread reader = new Thread(() -> {
            for (int i = 0; i < count;) {
                GetMessageResult found = store.getMessage("bench", Stores.TOPIC, QUEUE, first + i, 32, null);
                long now = System.nanoTime();
                for (int n = found.getMessageCount(); n > 0; n--) {
                    got[i++] = now;
                }
                if (found.getMessageCount() == 0) {
                    LockSupport.parkNanos(1_000_000_000L);
                }
                found.release();
            }
        });
        waiting.set(reader);
        long start = System.nanoTime();
        reader.start();
        for (int i = 0; i < count; i++) {
            LockSupport.parkNanos(pauses + random.nextInt((int) (2 * pauses)));
            began[i] = System.nanoTime();
            Stores.demand(store.putMessage(maker.make()));
        }
        reader.join();
        double seconds = (System.nanoTime() - start) / 1e9;
        long[] took = new long[count];
        for (int i = 0; i < count; i++) {
            took[i] = got[i] - began[i];
        }
        Arrays.sort(took);
        Map<String, Double> more = new TreeMap<>();
        more.put("p50_us", took[count / 2] / 1e3);
        more.put("p90_us", took[(int) (count * 0.9)] / 1e3);
        more.put("p99_us", took[(int) (count * 0.99)] / 1e3);
        more.put("p999_us", took[(int) (count * 0.999)] / 1e3);
        more.put("max_us", took[count - 1] / 1e3);
        return new Result(seconds, count, store.getMaxOffsetInQueue(Stores.TOPIC, QUEUE), more);
    }

    @Override
    public void close() {
        store.shutdown();
    }
}
