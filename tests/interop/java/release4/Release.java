import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** The calls that 4.x and 5.x spell differently, as in 4.9. */
final class Release {
    private static final BrokerStatsManager STATISTICS = new BrokerStatsManager("interop", true);

    private Release() {
    }

    /** A store that is neither loaded nor started, and reports its messages to no listener. */
    static DefaultMessageStore store(MessageStoreConfig config, String batchTopics) throws Exception {
        return new DefaultMessageStore(config, STATISTICS, (topic, queue, offset, tags, time, bits, properties) -> { },
            new BrokerConfig());
    }

    /** The store's own check of a record, including its checksum. */
    static DispatchRequest check(DefaultMessageStore store, ByteBuffer record) {
        return store.getCommitLog().checkMessageAndReturnSize(record, true, true);
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

    /** The nearest message. */
    static Map<String, Object> offsetsByTime(DefaultMessageStore store, String topic, int queue, long time) {
        return Map.of("offset", store.getOffsetInQueueByTime(topic, queue, time));
    }
}
