import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** The calls of clients that 4.x and 5.x spell differently, as in 4.9. */
final class ClientRelease {
    static final boolean IS_5 = false;

    private ClientRelease() {
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    static void heartbeatV2(ClientConfig client) {
        throw new UnsupportedOperationException("since 5.1");
    }

    static void assignedByBroker(DefaultMQPushConsumer consumer) {
        throw new UnsupportedOperationException("since 5.0");
    }

    /** A producer that compresses by ZLIB, LZ4 or ZSTD. A property is the only way to choose it. */
    static synchronized DefaultMQProducer compressing(String group, String type) {
        System.setProperty("rocketmq.message.compressType", type);
        try {
            return new DefaultMQProducer(group);
        } finally {
            System.clearProperty("rocketmq.message.compressType");
        }
    }
}
