import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Producers: each way to send, what the broker stores, and what it refuses. */
final class Sends {
    private Sends() {}

    static void register(Map<String, Clients.Scenario> all) {
        all.put("send_sync", context -> plain(context, context.producer()));
        all.put("send_vip", Sends::vip);
        all.put("send_async", Sends::async);
        all.put("send_oneway", Sends::oneway);
        all.put("send_ordered", Sends::ordered);
        all.put("send_to_queue", Sends::toQueue);
        all.put("send_batch", Sends::batch);
        all.put("send_zlib", context -> compressed(context, "ZLIB"));
        all.put("send_lz4", context -> compressed(context, "LZ4"));
        all.put("send_zstd", context -> compressed(context, "ZSTD"));
        all.put("send_properties", Sends::properties);
        all.put("send_large", Sends::large);
        all.put("send_illegal_names", Sends::illegalNames);
        all.put("send_unknown_topic", Sends::unknownTopic);
        all.put("send_wrong_queue", Sends::wrongQueue);
        all.put("send_namespace", Sends::namespace);
    }

    private static Object plain(Context context, DefaultMQProducer producer) throws Exception {
        String topic = context.topic("orders", 4);
        List<SendResult> results = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            results.add(producer.send(new Message(topic, "web", "key-" + i, ("body " + i).getBytes())));
        }
        Map<String, Object> told = context.sent(results);
        Map<String, Object> first = context.sent(results.get(0));
        first.keySet().removeAll(List.of("queueId", "queueOffset")); // the client begins at any queue
        told.put("first", first);
        told.put("stored", context.plain(context.stored(topic, 8)));
        return told;
    }

    private static Object vip(Context context) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(context.name("producer"));
        producer.setVipChannelEnabled(true);
        return plain(context, context.started(producer));
    }

    private static Object async(Context context) throws Exception {
        String topic = context.topic("orders", 4);
        DefaultMQProducer producer = context.producer();
        CountDownLatch latch = new CountDownLatch(20);
        List<SendResult> results = new ArrayList<>();
        List<String> errors = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            producer.send(Context.message(topic, "body " + i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    synchronized (results) {
                        results.add(result);
                    }
                    latch.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    synchronized (results) {
                        errors.add(e.getClass().getSimpleName());
                    }
                    latch.countDown();
                }
            });
        }
        latch.await(10, TimeUnit.SECONDS);
        Map<String, Object> told = context.sent(results);
        // Which queue a message takes depends on the order in which the client's threads ask for one.
        told.put("offsets", results.size());
        told.put("errors", errors);
        told.put("stored", bodies(context.stored(topic, 20)));
        return told;
    }

    private static Object oneway(Context context) throws Exception {
        String topic = context.topic("orders", 4);
        DefaultMQProducer producer = context.producer();
        for (int i = 0; i < 8; i++) {
            producer.sendOneway(Context.message(topic, "body " + i));
        }
        return bodies(context.stored(topic, 8));
    }

    private static Object ordered(Context context) throws Exception {
        String topic = context.topic("orders", 4);
        DefaultMQProducer producer = context.producer();
        for (int i = 0; i < 24; i++) {
            producer.send(Context.message(topic, "step " + i / 6 + " of user " + i % 6),
                (queues, message, user) -> queues.get((Integer) user % queues.size()), i % 6);
        }
        return byQueue(context.stored(topic, 24), 4);
    }

    private static Object toQueue(Context context) throws Exception {
        String topic = context.topic("orders", 4);
        DefaultMQProducer producer = context.producer();
        List<Object> told = new ArrayList<>();
        for (int queue : new int[] {2, 2, 0}) {
            told.add(context.sent(producer.send(Context.message(topic, "queue " + queue), context.queue(topic, queue))));
        }
        return told;
    }

    private static Object batch(Context context) throws Exception {
        String topic = context.topic("orders", 4);
        DefaultMQProducer producer = context.producer();
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            Message message = new Message(topic, "tag" + i % 2, "key-" + i, i, ("body " + i).getBytes(), true);
            message.putUserProperty("number", String.valueOf(i));
            batch.add(message);
        }
        Object first = context.sent(producer.send(batch, context.queue(topic, 1)));
        Object second = context.sent(producer.send(List.of(Context.message(topic, "alone")), context.queue(topic, 1)));
        List<MessageExt> stored = context.stored(topic, 6);
        long ids = stored.stream().map(MessageExt::getMsgId).distinct().count();
        List<Message> mixed = List.of(Context.message(topic, "here"), Context.message(context.name("other"), "there"));
        List<Message> huge = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            huge.add(new Message(topic, new byte[1 << 20]));
        }
        return Context.map("first", first, "second", second, "stored", context.whole(stored), "ids", ids, "mixed",
            context.attempt(() -> producer.send(mixed)), "huge", context.attempt(() -> producer.send(huge)));
    }

    private static Object compressed(Context context, String type) throws Exception {
        String topic = context.topic("orders", 1);
        DefaultMQProducer producer = context.started(ClientRelease.compressing(context.name("producer"), type));
        producer.send(new Message(topic, "a".repeat(10000).getBytes()));
        producer.send(new Message(topic, "small".getBytes()));
        producer.send(new Message(topic, "b".repeat(4096).getBytes())); // one byte below the limit
        return context.whole(context.stored(topic, 3));
    }

    private static Object properties(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        DefaultMQProducer producer = context.producer();
        Message rich = new Message(topic, "étiquette", "ключ second", Integer.MIN_VALUE, "größe 鍵 🚀".getBytes("UTF-8"), false);
        rich.putUserProperty("city", "Zürich");
        rich.putUserProperty("ключ-鍵", "значение 🚀");
        rich.putUserProperty("spaces", "  a  b  ");
        rich.setBuyerId("buyer");
        Message many = Context.message(topic, "many keys");
        many.setKeys(List.of("one", "two", "three"));
        many.setFlag(7);
        Message separators = Context.message(topic, "separators");
        separators.putUserProperty("odd", "x\u0001y");
        separators.putUserProperty("later", "kept");
        Message bare = Context.message(topic, "bare");
        List<Object> sent = new ArrayList<>();
        for (Message message : List.of(rich, many, separators, bare)) {
            sent.add(context.attempt(() -> producer.send(message)));
        }
        Message wide = Context.message(topic, "32,767 bytes of properties are allowed");
        wide.putUserProperty("wide", "x".repeat(33000));
        return Context.map("sent", sent, "wide", context.attempt(() -> producer.send(wide)), "empty",
            context.attempt(() -> producer.send(new Message(topic, new byte[0]))), "reserved",
            context.attempt(() -> {
                bare.putUserProperty("KEYS", "not allowed");
                return "allowed";
            }), "stored", context.whole(context.stored(topic, 4)));
    }

    private static Object large(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        DefaultMQProducer producer = new DefaultMQProducer(context.name("producer"));
        producer.setMaxMessageSize(8 << 20); // the broker decides
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setRetryTimesWhenSendFailed(0);
        context.started(producer);
        byte[] random = new byte[(4 << 20) + 1];
        new Random(7).nextBytes(random);
        Object most = context.attempt(() -> producer.send(new Message(topic, Arrays.copyOf(random, 4 << 20))));
        Object more = context.attempt(() -> producer.send(new Message(topic, random)));
        Object client = context.attempt(() -> context.producer().send(new Message(topic, random)));
        return Context.map("4 MiB", most, "one more", more, "client", client, "stored", context.whole(context.stored(topic, 1)));
    }

    private static Object illegalNames(Context context) throws Exception {
        DefaultMQProducer producer = context.producer();
        List<Object> client = new ArrayList<>();
        List<Object> broker = new ArrayList<>();
        for (String topic : new String[] {"", " ", "a b", "größe", "a/b", "a.b", "x".repeat(128), "SCHEDULE_TOPIC_XXXX"}) {
            client.add(List.of(context.text(topic), context.attempt(() -> producer.send(Context.message(topic, "body")))));
        }
        for (String topic : new String[] {"", " ", "a b", "größe", "a/b", "a.b", "x".repeat(128), "x".repeat(300), "%RETRY%" + "x".repeat(249),
            "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
            "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "rmq_sys_other"}) {
            Map<String, Object> told = context.told(context.broker(), 310, context.sendingTo(topic), "body");
            told.remove("fields");
            broker.add(List.of(context.text(topic), told));
        }
        return Context.map("client", client, "broker", broker);
    }

    private static Object unknownTopic(Context context) throws Exception {
        List<Object> told = new ArrayList<>();
        for (int queues : new int[] {4, 1, 16}) {
            DefaultMQProducer producer = new DefaultMQProducer(context.name("producer" + queues));
            producer.setDefaultTopicQueueNums(queues);
            context.started(producer);
            String topic = context.name("fresh" + queues);
            Object before = context.attempt(() -> producer.fetchPublishMessageQueues(topic).size());
            SendResult sent = producer.send(Context.message(topic, "first"));
            told.add(Context.map("wanted", queues, "before", before, "status", sent.getSendStatus().name(), "offset",
                sent.getQueueOffset(), "queues", context.queues(topic), "after", context.attempt(() -> producer.fetchPublishMessageQueues(topic).size())));
        }
        DefaultMQProducer producer = new DefaultMQProducer(context.name("producer"));
        producer.setCreateTopicKey("NoSuchTopic");
        context.started(producer);
        Object refused = context.attempt(() -> producer.send(Context.message(context.name("never"), "first")));
        Map<String, String> fields = context.sending("never");
        fields.put("c", "NoSuchTopic");
        return Context.map("made", told, "client", refused, "broker", context.told(context.broker(), 310, fields, "body"));
    }

    private static Object wrongQueue(Context context) throws Exception {
        String topic = context.topic("orders", 4);
        DefaultMQProducer producer = context.producer();
        List<Object> told = new ArrayList<>();
        for (int queue : new int[] {3, 4, 99}) {
            told.add(context.attempt(() -> producer.send(Context.message(topic, "queue " + queue), context.queue(topic, queue))));
        }
        Map<String, String> fields = context.sending("orders");
        fields.put("e", "-1");
        Map<String, Object> any = context.told(context.broker(), 310, fields, "any queue");
        ((Map<?, ?>) any.get("fields")).keySet().removeAll(List.of("queueId", "queueOffset")); // of a queue chosen by chance
        return Context.map("by client", told, "any", any, "stored", bodies(context.stored(topic, 2)));
    }

    private static Object namespace(Context context) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(context.name("producer"));
        producer.setNamespace("space");
        context.started(producer);
        String topic = context.name("orders");
        SendResult sent = producer.send(Context.message(topic, "in a namespace"));
        return Context.map("status", sent.getSendStatus().name(), "topic", context.text(sent.getMessageQueue().getTopic()), "queues",
            context.queues("space%" + topic), "stored", context.plain(context.stored("space%" + topic, 1)));
    }

    /** The bodies, sorted. */
    static List<String> bodies(List<MessageExt> messages) {
        return messages.stream().map(Context::text).sorted().collect(Collectors.toList());
    }

    /** The bodies of each queue, in order. */
    static List<List<String>> byQueue(List<MessageExt> messages, int queues) {
        List<List<String>> told = new ArrayList<>();
        for (int queue = 0; queue < queues; queue++) {
            int wanted = queue;
            told.add(messages.stream().filter(message -> message.getQueueId() == wanted).map(Context::text).collect(Collectors.toList()));
        }
        return told;
    }
}
