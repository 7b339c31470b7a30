import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** The calls of clients that 4.x and 5.x spell differently, as in 5.3. */
final class ClientRelease {
    static final boolean IS_5 = true;

    private ClientRelease() {
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    static void heartbeatV2(ClientConfig client) {
        client.setUseHeartbeatV2(true);
    }

    static void assignedByBroker(DefaultMQPushConsumer consumer) {
        consumer.setClientRebalance(false);
    }

    /** A producer that compresses by ZLIB, LZ4 or ZSTD. */
    static DefaultMQProducer compressing(String group, String type) {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setCompressType(CompressionType.of(type));
        return producer;
    }
}
