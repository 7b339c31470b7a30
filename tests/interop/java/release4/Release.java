import java.nio.ByteBuffer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** The calls that 4.x and 5.x spell differently: here as in 4.9. */
final class Release {
    private static final BrokerStatsManager STATISTICS = new BrokerStatsManager("interop", true);

    private Release() {
    }

    /** A store that is neither loaded nor started, and tells nobody of its messages. */
    static DefaultMessageStore store(MessageStoreConfig config) throws Exception {
        return new DefaultMessageStore(config, STATISTICS, (topic, queue, offset, tags, time, bits, properties) -> { },
            new BrokerConfig());
    }

    /** The store's own check of a record, with its checksum. */
    static DispatchRequest check(DefaultMessageStore store, ByteBuffer record) {
        return store.getCommitLog().checkMessageAndReturnSize(record, true, true);
    }
}
