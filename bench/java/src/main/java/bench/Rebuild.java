package bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Rebuilds consume queues and index of a log in each round, until all messages are dispatched: load() and start().
 * load() also checks the log. records: messages in all queues; checksum: the end of the log.
 *
 * <pre>dir= filemib=1024</pre>
 *
 * more: load_s; cpu_us of the whole JVM per message. 4.9 dispatches in start(), which checks only once a second
 * whether all is dispatched; our clock stops as soon as it is. 5.3 dispatches in load().
 */
final class Rebuild implements Round {
    private static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private final Args args;

    Rebuild(Args args) {
        this.args = args;
    }

    @Override
    public Result run() throws Exception {
        for (String derived : new String[] {"consumequeue", "index"}) {
            Stores.delete(args.dir().resolve(derived));
        }
        Files.deleteIfExists(args.dir().resolve("checkpoint"));
        Files.deleteIfExists(args.dir().resolve("abort"));
        DefaultMessageStore store = Stores.make(args);
        long cpu = SYSTEM.getProcessCpuTime();
        long start = System.nanoTime();
        if (!store.load()) {
            throw new IllegalStateException("load failed");
        }
        long loaded = System.nanoTime();
        AtomicLong done = new AtomicLong();
        AtomicLong cpuDone = new AtomicLong();
        Thread watch = new Thread(() -> {
            try {
                while (store.dispatchBehindBytes() <= 0 && System.nanoTime() - loaded < 50_000_000L) {
                    Thread.sleep(1);
                }
                Stores.waitDispatched(store);
                done.set(System.nanoTime());
                cpuDone.set(SYSTEM.getProcessCpuTime());
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        watch.start();
        store.start();
        watch.join();
        Map<String, Double> more = new TreeMap<>();
        long records = Stores.queued(store);
        more.put("load_s", (loaded - start) / 1e9);
        more.put("cpu_us", (cpuDone.get() - cpu) / 1e3 / records);
        long end = store.getMaxPhyOffset();
        Stores.stop(store);
        return new Result((done.get() - start) / 1e9, records, end, more);
    }
}
