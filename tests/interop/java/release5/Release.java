import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** The calls that 4.x and 5.x spell differently, as in 5.3. */
final class Release {
    private static final BrokerStatsManager STATISTICS = new BrokerStatsManager("interop", true);

    private Release() {
    }

    /** A store that is neither loaded nor started, and reports its messages to no listener. */
    static DefaultMessageStore store(MessageStoreConfig config, String batchTopics) throws Exception {
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        for (String name : batchTopics.isEmpty() ? new String[0] : batchTopics.split(",")) {
            TopicConfig topic = new TopicConfig(name);
            topic.setAttributes(Map.of("queue.type", "BatchCQ"));
            topics.put(name, topic);
        }
        return new DefaultMessageStore(config, STATISTICS, (topic, queue, offset, tags, time, bits, properties) -> { },
            new BrokerConfig(), topics);
    }

    /** The store's own check of a record, including its checksums. */
    static DispatchRequest check(DefaultMessageStore store, ByteBuffer record) {
        return store.getCommitLog().checkMessageAndReturnSize(record, true, false, true);
    }

    /** Accepts messages with any of these tags. */
    static MessageFilter filter(String topic, List<Object> tags) {
        SubscriptionData wanted = new SubscriptionData();
        wanted.setTopic(topic);
        wanted.setSubString("some");
        for (Object tag : tags) {
            wanted.getTagsSet().add((String) tag);
            wanted.getCodeSet().add(tag.hashCode());
        }
        return new DefaultMessageFilter(wanted);
    }

    /** The first message at or after a time, and the last one at or before it. */
    static Map<String, Object> offsetsByTime(DefaultMessageStore store, String topic, int queue, long time) {
        return Map.of("offset", store.getOffsetInQueueByTime(topic, queue, time),
            "upper", store.getOffsetInQueueByTime(topic, queue, time, BoundaryType.UPPER));
    }
}
