import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Sends messages and consumes them, with signatures: Secured NAMESERVER TOPIC GROUP ACCESS_KEY SECRET_KEY COUNT. An empty
 * ACCESS_KEY signs nothing. System properties set TLS. Prints a line of JSON: {"sent": n, "received": n, "code": code,
 * "error": text} with the first error of a send; without it, code is 0.
 */
public final class Secured {
    private Secured() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // logs
        int count = Integer.parseInt(args[5]);
        RPCHook hook = args[3].isEmpty() ? null : new AclClientRPCHook(new SessionCredentials(args[3], args[4]));
        DefaultMQProducer producer = new DefaultMQProducer(args[2] + "P", hook);
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName("producer");
        producer.setRetryTimesWhenSendFailed(0);
        producer.setVipChannelEnabled(true);
        producer.start();
        int sent = 0;
        int code = 0;
        String error = "";
        for (int i = 0; i < count && code == 0; i++) {
            try {
                producer.send(new Message(args[1], "tag", "key" + i, ("body " + i + " \u4f60\u597d").getBytes(StandardCharsets.UTF_8)));
                sent++;
            } catch (Exception e) {
                boolean ofBroker = e instanceof MQBrokerException || e.getCause() instanceof MQBrokerException;
                MQBrokerException answer = (MQBrokerException) (!ofBroker ? null : e.getCause() == null ? e : e.getCause());
                code = ofBroker ? answer.getResponseCode() : -1;
                error = ofBroker ? answer.getErrorMessage() : e.getClass().getSimpleName();
            }
        }
        AtomicInteger received = new AtomicInteger();
        if (sent > 0) {
            CountDownLatch all = new CountDownLatch(sent);
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2], hook, new AllocateMessageQueueAveragely());
            consumer.setNamesrvAddr(args[0]);
            consumer.setInstanceName("consumer");
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(args[1], "*");
            consumer.registerMessageListener(new MessageListenerConcurrently() {
                @Override
                public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
                    for (MessageExt message : messages) {
                        received.incrementAndGet();
                        all.countDown();
                    }
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                }
            });
            consumer.start();
            all.await(20, TimeUnit.SECONDS);
            if (received.get() == sent) {
                producer.queryMessage(args[1], "key0", 8, 0, Long.MAX_VALUE).getMessageList();
            }
        }
        out.println("{\"sent\":" + sent + ",\"received\":" + received.get() + ",\"code\":" + code + ",\"error\":\""
            + error.replace("\\", "/").replace("\"", "'").replace("\n", " ") + "\"}");
        Runtime.getRuntime().halt(0);
    }
}
