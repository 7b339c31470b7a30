package bench;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * load() of a store that was closed (normal) or killed (abnormal=true). checksum: the end of the log.
 * Java has written the consume queues and the index. The store is never started, so nothing is written.
 *
 * <pre>dir= abnormal=false filemib=1024</pre>
 */
final class Load implements Round {
    private final Args args;

    Load(Args args) {
        this.args = args;
    }

    @Override
    public Result run() throws Exception {
        Path abort = args.dir().resolve("abort");
        if (args.flag("abnormal")) {
            Files.write(abort, new byte[0]);
        } else {
            Files.deleteIfExists(abort);
        }
        DefaultMessageStore store = Stores.make(args);
        long start = System.nanoTime();
        if (!store.load()) {
            throw new IllegalStateException("load failed");
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        Map<String, Double> more = new TreeMap<>();
        more.put("queued", (double) Stores.queued(store));
        long end = store.getMaxPhyOffset();
        Stores.forget(store);
        return new Result(seconds, 1, end, more);
    }
}
