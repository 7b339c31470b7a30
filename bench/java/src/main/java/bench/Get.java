package bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;

/**
 * getMessage over queue 0 of a topic, from its first message to the one before offset "to", batch messages per call.
 * records: number of messages; checksum: their bytes, or (mode=decode) the sum of their queue offsets, physical offsets
 * and body lengths.
 *
 * <pre>dir= mode=slices|copy|decode batch=32 to=(the queue's end) tag=(any) topic=BenchTopic cold=false filemib=1024</pre>
 *
 * cold: each round opens the store and closes it, outside the clock, so that no page of it stays mapped;
 * the caller removes its pages from the page cache between two rounds. more: cpu_us of the whole JVM per message.
 */
final class Get implements Round {
    private static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private final Args args;
    private final String topic;
    private final String mode;
    private final int batch;
    private final boolean cold;
    private final MessageFilter filter;
    private DefaultMessageStore store;
    private long bytes;
    private long decoded;

    Get(Args args) throws Exception {
        this.args = args;
        topic = args.text("topic", Stores.TOPIC);
        mode = args.text("mode", "decode");
        batch = args.number("batch", 32);
        cold = args.flag("cold");
        String tag = args.text("tag", null);
        filter = tag == null ? null : new Tags(Set.of(tag));
        if (!cold) {
            store = Stores.start(args);
        }
    }

    /** What a broker filters by: the hash of each tag. The client compares the text; see below. */
    private static final class Tags implements MessageFilter {
        private final Set<Integer> codes = new HashSet<>();
        private final Set<String> tags;

        Tags(Set<String> tags) {
            this.tags = tags;
            for (String tag : tags) {
                codes.add(tag.hashCode());
            }
        }

        @Override
        public boolean isMatchedByConsumeQueue(Long code, ConsumeQueueExt.CqExtUnit unit) {
            return code == null || codes.contains(code.intValue());
        }

        @Override
        public boolean isMatchedByCommitLog(ByteBuffer message, Map<String, String> properties) {
            return true;
        }
    }

    @Override
    public Result run() throws Exception {
        if (cold) {
            store = Stores.start(args);
        }
        long to = Math.min(args.number("to", Integer.MAX_VALUE), store.getMaxOffsetInQueue(topic, 0));
        long records = 0;
        bytes = 0;
        decoded = 0;
        long cpu = SYSTEM.getProcessCpuTime();
        long start = System.nanoTime();
        for (long offset = store.getMinOffsetInQueue(topic, 0); offset < to;) {
            GetMessageResult got = store.getMessage("bench", topic, 0, offset, (int) Math.min(batch, to - offset), filter);
            records += take(got);
            offset = got.getNextBeginOffset();
            got.release();
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        Map<String, Double> more = new TreeMap<>();
        more.put("cpu_us", (SYSTEM.getProcessCpuTime() - cpu) / 1e3 / Math.max(1, records));
        if (cold) {
            Stores.stop(store);
            store = null;
        }
        return new Result(seconds, records, mode.equals("decode") ? decoded : bytes, more);
    }

    private long take(GetMessageResult got) {
        List<ByteBuffer> buffers = got.getMessageBufferList();
        switch (mode) {
            case "slices" -> bytes += got.getBufferTotalSize();
            case "copy" -> {
                ByteBuffer heap = ByteBuffer.allocate(got.getBufferTotalSize());
                for (ByteBuffer buffer : buffers) {
                    heap.put(buffer);
                }
                bytes += heap.position();
            }
            case "decode" -> {
                long kept = 0;
                for (ByteBuffer buffer : buffers) {
                    MessageExt m = MessageDecoder.decode(buffer, true);
                    if (filter == null || ((Tags) filter).tags.contains(m.getTags())) {
                        decoded += m.getQueueOffset() + m.getCommitLogOffset() + m.getBody().length;
                        kept++;
                    }
                }
                return kept;
            }
            default -> throw new IllegalArgumentException(mode);
        }
        return buffers.size();
    }

    @Override
    public void close() {
        if (store != null) {
            store.shutdown();
        }
    }
}
