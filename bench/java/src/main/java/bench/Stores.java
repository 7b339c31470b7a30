package bench;

import java.lang.reflect.Constructor;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ's own store, of whichever release is on the class path. */
final class Stores {
    static final String TOPIC = "BenchTopic";

    private Stores() {
    }

    /** dir; flush=async or sync; filemib=1024 of a commit log file; all else is RocketMQ's default. */
    private static MessageStoreConfig config(Args args) {
        MessageStoreConfig c = new MessageStoreConfig();
        c.setStorePathRootDir(args.dir().toString());
        c.setStorePathCommitLog(args.dir().resolve("commitlog").toString());
        c.setMappedFileSizeCommitLog(args.number("filemib", 1024) << 20);
        c.setFlushDiskType(args.text("flush", "async").equals("sync") ? FlushDiskType.SYNC_FLUSH : FlushDiskType.ASYNC_FLUSH);
        c.setHaListenPort(0);
        c.setDiskMaxUsedSpaceRatio(95);
        return c;
    }

    /** Neither loaded nor started. */
    static DefaultMessageStore make(Args args) throws Exception {
        MessageArrivingListener nobody = (topic, queueId, offset, tagsCode, time, bitMap, properties) -> { };
        BrokerStatsManager stats = new BrokerStatsManager("bench", true);
        MessageStoreConfig config = config(args);
        for (Constructor<?> k : DefaultMessageStore.class.getConstructors()) {
            if (k.getParameterCount() == 5) {       // 5.x: the topics too
                return (DefaultMessageStore) k.newInstance(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
            }
            if (k.getParameterCount() == 4) {
                return (DefaultMessageStore) k.newInstance(config, stats, nobody, new BrokerConfig());
            }
        }
        throw new IllegalStateException("DefaultMessageStore has no constructor that we know");
    }

    static DefaultMessageStore start(Args args) throws Exception {
        DefaultMessageStore store = make(args);
        if (!store.load()) {
            throw new IllegalStateException("load failed");
        }
        store.start();
        return store;
    }

    /** Until consume queues and index hold all that was put. */
    static void waitDispatched(DefaultMessageStore store) throws InterruptedException {
        long stop = System.nanoTime() + 120_000_000_000L;
        while (store.dispatchBehindBytes() > 0) {
            if (System.nanoTime() > stop) {
                throw new IllegalStateException("dispatching takes longer than two minutes");
            }
            Thread.sleep(1);
        }
    }

    static void demand(PutMessageResult result) {
        if (result == null || !result.isOk()) {
            throw new IllegalStateException(String.valueOf(result));
        }
    }
}
