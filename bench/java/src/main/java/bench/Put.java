package bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * putMessage, count messages per round, by one or more threads; or (window > 0) asyncPutMessage with at most window
 * uncompleted messages; or (batch > 0) putMessages of batch messages per call. checksum: the end of the log after them.
 *
 * <pre>dir= body=128 count=100000 threads=1 window=0 batch=0 flush=async|sync filemib=1024
 * topics=1 queues=4</pre>
 *
 * more: dispatched_s, the seconds until all messages are dispatched; cpu_us of the whole JVM per message until then;
 * queued: number of messages in all queues;
 * p50_us, p90_us, p99_us, p999_us, p9999_us, max_us of a put (latency=true); roll_us: the slowest put that began a new file.
 */
final class Put implements Round {
    private static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private final DefaultMessageStore store;
    private final Maker[] makers;
    private final long[][] nanos;               // of each put, in order of time; empty without latency=true
    private final long[][] rolls;               // of each put that began a file; 0 for other puts
    private final int count;
    private final int window;
    private final int batch;
    private final long fileBytes;

    Put(Args args) throws Exception {
        store = Stores.start(args);
        int threads = args.number("threads", 1);
        count = args.number("count", 100_000) / threads * threads;
        window = args.number("window", 0);
        batch = args.number("batch", 0);
        fileBytes = (long) args.number("filemib", 1024) << 20;
        makers = new Maker[threads];
        nanos = new long[threads][args.flag("latency") ? count / threads : 0];
        rolls = new long[threads][1];
        for (int t = 0; t < threads; t++) {
            makers[t] = new Maker(args, (long) t << 32);
        }
    }

    @Override
    public Result run() throws Exception {
        long cpu = SYSTEM.getProcessCpuTime();
        long start = System.nanoTime();
        double seconds = batch > 0 ? batches() : window > 0 ? inFlight() : makers.length > 1 ? byThreads() : byOne();
        Stores.waitDispatched(store);
        Map<String, Double> more = new TreeMap<>();
        more.put("dispatched_s", (System.nanoTime() - start) / 1e9);
        more.put("cpu_us", (SYSTEM.getProcessCpuTime() - cpu) / 1e3 / count);
        more.put("queued", (double) Stores.queued(store));
        percentiles(more);
        store.flush();                          // so that write-back does not disturb the round of the other side
        return new Result(seconds, count, store.getMaxPhyOffset(), more);
    }

    private double byOne() {
        long start = System.nanoTime();
        put(0, count);
        return (System.nanoTime() - start) / 1e9;
    }

    private double batches() {
        long start = System.nanoTime();
        for (int i = 0; i < count; i += batch) {
            Stores.demand(store.putMessages(makers[0].batch(batch)));
        }
        return (System.nanoTime() - start) / 1e9;
    }

    private void put(int thread, int times) {
        Maker maker = makers[thread];
        long[] took = nanos[thread];
        if (took.length == 0) {
            for (int i = 0; i < times; i++) {
                Stores.demand(store.putMessage(maker.make()));
            }
            return;
        }
        long file = -1;
        rolls[thread][0] = 0;
        for (int i = 0; i < times; i++) {
            long start = System.nanoTime();
            PutMessageResult result = store.putMessage(maker.make());
            took[i] = System.nanoTime() - start;
            Stores.demand(result);
            long now = result.getAppendMessageResult().getWroteOffset() / fileBytes;
            if (file >= 0 && now != file) {
                rolls[thread][0] = Math.max(rolls[thread][0], took[i]);
            }
            file = now;
        }
    }

    private double byThreads() throws Exception {
        int n = makers.length;
        CyclicBarrier both = new CyclicBarrier(n + 1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Thread[] threads = new Thread[n];
        for (int t = 0; t < n; t++) {
            int me = t;
            threads[t] = new Thread(() -> {
                try {
                    both.await();
                    put(me, count / n);
                } catch (Throwable e) {
                    failure.set(e);
                }
            });
            threads[t].start();
        }
        both.await();
        long start = System.nanoTime();
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return (System.nanoTime() - start) / 1e9;
    }

    private double inFlight() throws Exception {
        Semaphore room = new Semaphore(window);
        AtomicReference<Object> failure = new AtomicReference<>();
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
            room.acquire();
            store.asyncPutMessage(makers[0].make()).whenComplete((result, error) -> {
                if (error != null || !result.isOk()) {
                    failure.set(error != null ? error : result);
                }
                room.release();
            });
        }
        room.acquire(window);
        double seconds = (System.nanoTime() - start) / 1e9;
        if (failure.get() != null) {
            throw new IllegalStateException(String.valueOf(failure.get()));
        }
        return seconds;
    }

    private void percentiles(Map<String, Double> more) {
        long[] all = Arrays.stream(nanos).flatMapToLong(Arrays::stream).sorted().toArray();
        if (all.length == 0) {
            return;
        }
        more.put("p50_us", all[all.length / 2] / 1e3);
        more.put("p90_us", all[(int) (all.length * 0.9)] / 1e3);
        more.put("p99_us", all[(int) (all.length * 0.99)] / 1e3);
        more.put("p999_us", all[(int) (all.length * 0.999)] / 1e3);
        more.put("p9999_us", all[(int) (all.length * 0.9999)] / 1e3);
        more.put("max_us", all[all.length - 1] / 1e3);
        more.put("roll_us", Arrays.stream(rolls).mapToLong(r -> r[0]).max().orElse(0) / 1e3);
    }

    @Override
    public void close() {
        store.shutdown();
    }
}
