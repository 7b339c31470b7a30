import java.time.LocalTime;
import java.time.format.DateTimeFormatter;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends an order; its consumer fails each time, until the broker puts the order into the dead letters. */
public final class Failing {
    private static final String NAME_SERVER = System.getenv().getOrDefault("NAMESRV_ADDR", "127.0.0.1:9876");
    private static final int MOST_RETRIES = 3;
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("HH:mm:ss.SSS");

    public static void main(String[] arguments) throws Exception {
        CountDownLatch failures = new CountDownLatch(1 + MOST_RETRIES);
        DefaultMQProducer producer = new DefaultMQProducer("shop");
        producer.setNamesrvAddr(NAME_SERVER);
        producer.start();
        SendResult sent = producer.send(new Message("orders", "web", "o-7", "one bicycle".getBytes()));
        say("sent", sent.getMsgId());

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("billing");
        consumer.setNamesrvAddr(NAME_SERVER);
        consumer.setMaxReconsumeTimes(MOST_RETRIES);
        consumer.setPollNameServerInterval(1000); // ms; a new group has no retry topic yet
        consumer.subscribe("orders", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                say("failed", message.getMsgId() + ", retry " + message.getReconsumeTimes() + " of " + MOST_RETRIES);
                failures.countDown();
            }
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        boolean isDead = failures.await(60, TimeUnit.SECONDS);
        Thread.sleep(1000); // the last send-back is on its way
        consumer.shutdown();
        producer.shutdown();
        say(isDead ? "ended" : "not all retries came", "see %DLQ%billing");
    }

    private static void say(String what, String more) {
        System.out.println(LocalTime.now().format(TIME) + " " + what + " " + more);
    }
}
