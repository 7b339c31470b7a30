import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.LocalTime;
import java.time.format.DateTimeFormatter;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * A push consumer that is shown on a terminal: Audit NAMESERVER GROUP TOPIC MILLIS COUNT. A call of its listener takes
 * MILLIS for one message. It prints each second what it has consumed, and ends after COUNT different messages.
 */
public final class Audit {
    private Audit() {}

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // logs
        System.setProperty("rocketmq.remoting.version", String.valueOf(MQVersion.CURRENT_VERSION));
        long millis = Long.parseLong(args[3]);
        int count = Integer.parseInt(args[4]);
        Set<String> seen = ConcurrentHashMap.newKeySet();
        AtomicLong calls = new AtomicLong();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1000); // 30 s by default, as the next one
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeThreadMin(8);
        consumer.setConsumeThreadMax(8);
        consumer.setPullBatchSize(8);
        consumer.setPullThresholdForQueue(64);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, where) -> {
            messages.forEach(message -> {
                try {
                    Thread.sleep(millis);
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
                calls.incrementAndGet();
                seen.add(Context.text(message));
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DateTimeFormatter time = DateTimeFormatter.ofPattern("HH:mm:ss");
        for (long before = -1; seen.size() < count;) {
            Thread.sleep(1000);
            if (before != calls.get()) {
                before = calls.get();
                out.printf("%s  consumer: %,d of %,d messages%n", time.format(LocalTime.now()), seen.size(), count);
            }
        }
        consumer.shutdown();
        out.printf("consumer: all messages, %,d of them twice%n", calls.get() - seen.size());
        System.exit(0);
    }
}
