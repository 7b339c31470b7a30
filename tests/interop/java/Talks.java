import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Steps with requests, replies and traces, see Steps. Each command has topic.
 *
 * ask bodies            sends requests one after the other; answers with [body, properties] of each reply
 * serve group, count    a push consumer that replies "re: BODY" to each request; answers after `count` of them, or after 20 s
 * traced group, traces  sends and consumes with message trace to the topic `traces`: a message, a delayed one, a batch of
 *                       two and a oneway; the listener fails for the body "bad" once
 */
final class Talks {
    private Talks() {}

    static Object play(Context context, String topic, Map<?, ?> command) throws Exception {
        switch ((String) command.get("do")) {
            case "ask":
                return ask(context, topic, (List<?>) command.get("bodies"));
            case "serve":
                return serve(context, topic, (String) command.get("group"), ((Number) command.get("count")).intValue());
            case "traced":
                return traced(context, topic, (String) command.get("group"), (String) command.get("traces"));
            default:
                throw new IllegalArgumentException("no such command: " + command);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static Object ask(Context context, String topic, List<?> bodies) throws Exception {
        DefaultMQProducer producer = context.started(new DefaultMQProducer("askers"));
        List<Object> told = new ArrayList<>();
        for (Object body : bodies) {
            CompletableFuture<Message> reply = new CompletableFuture<>();
            // Not the form without a callback: see Requests.asked().
            producer.request(new Message(topic, bytes((String) body)), new RequestCallback() {
                @Override
                public void onSuccess(Message message) {
                    if (message != null) {
                        reply.complete(message);
                    }
                }

                @Override
                public void onException(Throwable e) {
                    reply.completeExceptionally(e);
                }
            }, 10_000);
            Message found = reply.get(12, TimeUnit.SECONDS);
            told.add(List.of(new String(found.getBody(), StandardCharsets.UTF_8), found.getProperties()));
        }
        return told;
    }

    private static Object serve(Context context, String topic, String group, int count) throws Exception {
        DefaultMQProducer producer = context.started(new DefaultMQProducer("servants"));
        LinkedBlockingQueue<Object> served = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = context.ready(new DefaultMQPushConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, where) -> {
            messages.forEach(message -> {
                try {
                    Message reply = MessageUtil.createReplyMessage(message, bytes("re: " + Context.text(message)));
                    reply.putUserProperty("mood", "good");
                    served.add(List.of(producer.send(reply).getSendStatus().name(), message.getProperties()));
                } catch (Exception e) {
                    served.add(String.valueOf(e));
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        List<Object> told = new ArrayList<>();
        for (long end = System.nanoTime() + 20_000_000_000L; told.size() < count && System.nanoTime() < end;) {
            Object one = served.poll(100, TimeUnit.MILLISECONDS);
            if (one != null) {
                told.add(one);
            }
        }
        consumer.shutdown();
        return told;
    }

    private static Object traced(Context context, String topic, String group, String traces) throws Exception {
        DefaultMQProducer producer = context.started(new DefaultMQProducer("traced", true, traces));
        producer.send(new Message(topic, "web", "o-1 c-7", bytes("bad")));
        Message later = new Message(topic, "web", bytes("later"));
        later.setDelayTimeLevel(1);
        producer.send(later);
        producer.send(List.of(new Message(topic, "web", "k1", bytes("1")), new Message(topic, "app", "k2", bytes("22"))));
        producer.sendOneway(new Message(topic, bytes("oneway")));
        LinkedBlockingQueue<String> found = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = context.ready(new DefaultMQPushConsumer(group, true, traces));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, where) -> {
            messages.forEach(message -> found.add(Context.text(message)));
            boolean fails = Context.text(messages.get(0)).equals("bad") && messages.get(0).getReconsumeTimes() == 0;
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        List<String> told = new ArrayList<>();
        for (long end = System.nanoTime() + 20_000_000_000L; told.size() < 6 && System.nanoTime() < end;) {
            String one = found.poll(100, TimeUnit.MILLISECONDS);
            if (one != null) {
                told.add(one);
            }
        }
        Thread.sleep(500);
        consumer.shutdown();
        producer.shutdown();
        Thread.sleep(1000); // the last traces
        return told;
    }
}
