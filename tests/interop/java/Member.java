import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * A member of a consumer group: Member NAMESERVER GROUP TOPIC STRATEGY ORDERLY MILLIS. ORDERLY is true or false; a call
 * of the listener takes MILLIS. It prints "ready", then a line of JSON for each message as it is consumed, and ends in
 * order with its input.
 */
public final class Member {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Member() {}

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // logs
        System.setProperty("rocketmq.remoting.version", String.valueOf(MQVersion.CURRENT_VERSION));
        long millis = Long.parseLong(args[5]);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientIP("127.0.0.1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAllocateMessageQueueStrategy(strategy(args[3]));
        consumer.setConsumeThreadMin(8);
        consumer.setConsumeThreadMax(8);
        consumer.subscribe(args[2], "*");
        if (args[4].equals("true")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, where) -> {
                consume(messages, millis);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, where) -> {
                consume(messages, millis);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        OUT.println("ready");
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
        System.exit(0);
    }

    private static AllocateMessageQueueStrategy strategy(String name) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            default:
                return new AllocateMessageQueueConsistentHash();
        }
    }

    private static void consume(List<MessageExt> messages, long millis) {
        for (MessageExt message : messages) {
            long began = System.currentTimeMillis();
            try {
                Thread.sleep(millis);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            InetSocketAddress host = (InetSocketAddress) message.getStoreHost();
            Object told = Context.map("broker", host.getAddress().getHostAddress() + ":" + host.getPort(),
                "queue", message.getQueueId(), "offset", message.getQueueOffset(), "body", Context.text(message),
                "began", began, "ended", System.currentTimeMillis());
            OUT.println(RemotingSerializable.toJson(told, false));
        }
    }
}
