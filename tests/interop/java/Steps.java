import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Single steps of a test that does other things between them. Each command has nameServer and topic.
 *
 * send bodies                    one message for each, tag "t", key "k-BODY"; answers with [body, status, broker, id] of each
 * run_script                     see LocalTransactions
 * consume group, count, millis   a new push consumer from the first offset: ends `millis` after `count` messages, or after
 *                                10 s; answers with the bodies in the order of their arrival
 * poll group, count, millis, traces  a new lite pull consumer, as consume, with 30 s; it commits what it polled, and
 *                                writes message traces to the topic `traces` if there is one
 * Both may have sql, an expression instead of "*"
 * broadcast group, count, millis, instance, ip   as consume, with a broadcasting consumer of this client id
 * look key, id                   the bodies that a client finds by a key, and the body of the message with an offset id
 * transact group, plan, checks, millis   see Transactions
 * others                         see Talks
 */
final class Steps {
    private Steps() {}

    static Object play(Map<?, ?> command) throws Exception {
        Context context = new Context((String) command.get("nameServer"), "step" + System.nanoTime());
        try {
            String topic = (String) command.get("topic");
            switch ((String) command.get("do")) {
                case "send":
                    return send(context.producer(), topic, (List<?>) command.get("bodies"));
                case "run_script":
                    return LocalTransactions.play(context, topic, command);
                case "consume":
                case "broadcast":
                    return consume(context, topic, (String) command.get("group"), ((Number) command.get("count")).intValue(),
                        ((Number) command.get("millis")).intValue(), (String) command.get("instance"), (String) command.get("ip"),
                        (String) command.get("sql"));
                case "poll":
                    return poll(context, topic, (String) command.get("group"), ((Number) command.get("count")).intValue(),
                        ((Number) command.get("millis")).intValue(), (String) command.get("traces"), (String) command.get("sql"));
                case "look":
                    return look(context.producer(), topic, (String) command.get("key"), (String) command.get("id"));
                case "transact":
                    return Transactions.play(context, topic, command);
                default:
                    return Talks.play(context, topic, command);
            }
        } finally {
            context.close();
        }
    }

    private static Object send(DefaultMQProducer producer, String topic, List<?> bodies) throws Exception {
        List<Object> told = new ArrayList<>();
        for (Object body : bodies) {
            SendResult result = producer.send(new Message(topic, "t", "k-" + body, ((String) body).getBytes(StandardCharsets.UTF_8)));
            told.add(Arrays.asList(body, result.getSendStatus().name(), result.getMessageQueue().getBrokerName(), result.getOffsetMsgId()));
        }
        return told;
    }

    private static Object consume(Context context, String topic, String group, int count, int millis, String instance, String ip,
        String sql) throws Exception {
        LinkedBlockingQueue<String> queue = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = context.ready(new DefaultMQPushConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (instance != null) {
            ClientRelease.broadcast(consumer);
            consumer.setInstanceName(instance);
            consumer.setClientIP(ip);
        }
        consumer.subscribe(topic, sql == null ? MessageSelector.byTag("*") : MessageSelector.bySql(sql));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, where) -> {
            messages.forEach(message -> queue.add(Context.text(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        List<String> bodies = new ArrayList<>();
        try {
            for (long end = System.nanoTime() + 10_000_000_000L; bodies.size() < count && System.nanoTime() < end;) {
                String body = queue.poll(100, TimeUnit.MILLISECONDS);
                if (body != null) {
                    bodies.add(body);
                }
            }
            Thread.sleep(millis);
        } finally {
            consumer.shutdown(); // commits the offsets
        }
        queue.drainTo(bodies);
        return bodies;
    }

    private static Object poll(
        Context context, String topic, String group, int count, int millis, String traces, String sql)
        throws Exception {
        DefaultLitePullConsumer consumer = context.ready(new DefaultLitePullConsumer(group));
        if (traces != null) {
            consumer.setEnableMsgTrace(true);
            consumer.setCustomizedTraceTopic(traces);
        }
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(topic, sql == null ? MessageSelector.byTag("*") : MessageSelector.bySql(sql));
        consumer.start();
        List<String> bodies = new ArrayList<>();
        try {
            long end = System.nanoTime() + 30_000_000_000L;
            while (bodies.size() < count && System.nanoTime() < end) {
                consumer.poll(100).forEach(message -> bodies.add(Context.text(message)));
            }
            for (end = System.nanoTime() + millis * 1_000_000L; System.nanoTime() < end;) {
                consumer.poll(100).forEach(message -> bodies.add(Context.text(message)));
            }
            consumer.commitSync();
        } finally {
            consumer.shutdown(); // writes the offsets
        }
        return bodies;
    }

    private static Object look(DefaultMQProducer producer, String topic, String key, String id) throws Exception {
        QueryResult found = producer.queryMessage(topic, key, 32, 0, Long.MAX_VALUE);
        List<String> bodies = new ArrayList<>();
        found.getMessageList().forEach(message -> bodies.add(Context.text(message)));
        MessageExt one = producer.viewMessage(topic, id);
        return Context.map("key", bodies, "id", Context.text(one));
    }
}
