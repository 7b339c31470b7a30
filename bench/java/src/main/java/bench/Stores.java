package bench;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Locale;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MappedFileQueue;
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

    /** BenchTopic, or as many as topics= says: BenchTopic-00000 and so on. */
    static String[] topics(Args args) {
        int n = args.number("topics", 1);
        return n == 1 ? new String[] {TOPIC}
            : IntStream.range(0, n).mapToObj(i -> String.format(Locale.ROOT, "%s-%05d", TOPIC, i)).toArray(String[]::new);
    }

    /** Neither loaded nor started. */
    static DefaultMessageStore make(Args args) throws Exception {
        return make(args, (topic, queueId, offset, tagsCode, time, bitMap, properties) -> { });
    }

    /** nobody: whom the dispatcher tells of each message. */
    static DefaultMessageStore make(Args args, MessageArrivingListener nobody) throws Exception {
        BrokerStatsManager stats = new BrokerStatsManager("bench", true);
        MessageStoreConfig config = config(args);
        for (Constructor<?> k : DefaultMessageStore.class.getConstructors()) {
            if (k.getParameterCount() == 5) {       // 5.x: also the topics
                return (DefaultMessageStore) k.newInstance(config, stats, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
            }
            if (k.getParameterCount() == 4) {
                return (DefaultMessageStore) k.newInstance(config, stats, nobody, new BrokerConfig());
            }
        }
        throw new IllegalStateException("DefaultMessageStore has no constructor that we know");
    }

    static DefaultMessageStore start(Args args) throws Exception {
        return start(make(args));
    }

    static DefaultMessageStore start(DefaultMessageStore store) throws Exception {
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

    /** How many messages all queues hold together. */
    static long queued(DefaultMessageStore store) throws Exception {
        long sum = 0;
        for (var topic : store.getConsumeQueueTable().entrySet()) {
            for (int queue : topic.getValue().keySet()) {
                sum += store.getMaxOffsetInQueue(topic.getKey(), queue);
            }
        }
        return sum;
    }

    /** Ends what a store that was loaded, but never started, runs; its files are unmapped. */
    static void forget(DefaultMessageStore store) throws Exception {
        store.getAllocateMappedFileService().shutdown();
        unmap(store);
    }

    /** Stops a store that was started; its files are unmapped. */
    static void stop(DefaultMessageStore store) throws Exception {
        store.shutdown();
        unmap(store);
    }

    /** RocketMQ leaves that to the garbage collector. */
    private static void unmap(DefaultMessageStore store) throws Exception {
        filesOf(store.getCommitLog()).shutdown(0);
        for (var topic : store.getConsumeQueueTable().values()) {
            for (Object queue : topic.values()) {
                filesOf(queue).shutdown(0);
            }
        }
        System.gc();
    }

    private static MappedFileQueue filesOf(Object owner) throws Exception {
        for (Class<?> c = owner.getClass(); c != null; c = c.getSuperclass()) {
            for (Field field : c.getDeclaredFields()) {
                if (MappedFileQueue.class.isAssignableFrom(field.getType())) {
                    field.setAccessible(true);
                    return (MappedFileQueue) field.get(owner);
                }
            }
        }
        throw new IllegalStateException(owner.getClass() + " has no files");
    }

    static void delete(Path path) throws IOException {
        if (!Files.exists(path)) {
            return;
        }
        try (Stream<Path> all = Files.walk(path)) {
            all.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    static void demand(PutMessageResult result) {
        if (result == null || !result.isOk()) {
            throw new IllegalStateException(String.valueOf(result));
        }
    }
}
