import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Request and reply: a reply goes to the broker, which pushes it to the client that asked. */
final class Requests {
    private Requests() {}

    static void register(Map<String, Clients.Scenario> all) {
        all.put("request_reply", Requests::reply);
        all.put("request_timeout", Requests::timeout);
        all.put("reply_to_nobody", Requests::toNobody);
    }

    private static Object reply(Context context) throws Exception {
        String topic = context.topic("questions", 1);
        DefaultMQProducer answers = context.producer();
        List<Object> replies = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = Pushes.consumer(context, "servant", topic, "*");
        consumer.setMessageListener((MessageListenerConcurrently) (messages, how) -> {
            for (MessageExt message : messages) {
                Message reply = made(message);
                replies.add(Context.map("question", context.plain(message), "sent", context.attempt(() -> {
                    Map<String, Object> sent = context.sent(answers.send(reply));
                    sent.remove("queueId");
                    sent.remove("queueOffset"); // the position of the stored reply, which all scenarios share
                    return sent;
                })));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer(context.name("asker"));
        context.started(producer);
        List<Object> told = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Message question = new Message(topic, "tag", "key", ("question " + i).getBytes());
            question.putUserProperty("number", String.valueOf(i));
            Message reply = asked(producer, question);
            told.add(Context.map("body", Context.body(reply.getBody()), "topic", context.text(reply.getTopic()), "flag", reply.getFlag(), "properties",
                context.properties(reply)));
        }
        Context.until(3000, () -> replies.size() == 3 ? true : null); // the client may have the reply first
        replies.sort(Comparator.comparing(Object::toString)); // the first may be told after the second
        return Context.map("replies", told, "servant", replies);
    }

    private static Message made(MessageExt question) {
        try {
            Message reply = MessageUtil.createReplyMessage(question, ("reply to " + Context.text(question)).getBytes());
            reply.putUserProperty("mood", "good");
            return reply;
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    /**
     * The reply, by a callback: the synchronous form of client 5.3.3 ends when the question is sent (apache/rocketmq#9319),
     * and a callback is called with null then.
     */
    private static Message asked(DefaultMQProducer producer, Message question) throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(question, new RequestCallback() {
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
        }, 6000);
        return reply.get(8, TimeUnit.SECONDS);
    }

    private static Object timeout(Context context) throws Exception {
        String topic = context.topic("questions", 1);
        DefaultMQProducer producer = context.producer();
        Object told = context.attempt(() -> producer.request(Context.message(topic, "nobody listens"), 700));
        return Context.map("asker", told, "stored", context.whole(context.stored(topic, 1)));
    }

    /** A reply to a client that the broker does not know. */
    private static Object toNobody(Context context) throws Exception {
        String topic = context.topic("questions", 1);
        DefaultMQProducer producer = context.producer();
        MessageExt question = new MessageExt();
        question.setTopic(topic);
        question.setBody("question".getBytes());
        MessageAccessor.putProperty(question, "CLUSTER", cluster(context));
        MessageAccessor.putProperty(question, "CORRELATION_ID", "none");
        MessageAccessor.putProperty(question, "REPLY_TO_CLIENT", "nobody");
        MessageAccessor.putProperty(question, "TTL", "1000");
        Message reply = MessageUtil.createReplyMessage(question, "reply".getBytes());
        return context.attempt(() -> {
            Map<String, Object> sent = context.sent(producer.send(reply));
            sent.remove("queueId");
            sent.remove("queueOffset");
            return sent;
        });
    }

    private static String cluster(Context context) throws Exception {
        Map<?, ?> data = (Map<?, ?>) ((List<?>) context.route("TBW102").get("brokerDatas")).get(0);
        return (String) data.get("cluster");
    }
}
