import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers: what they get, in which order, from where on, and which offsets stay. */
final class Pushes {
    private Pushes() {}

    static void register(Map<String, Clients.Scenario> all) {
        all.put("push_concurrent", Pushes::concurrent);
        all.put("push_orderly", Pushes::orderly);
        all.put("push_orderly_shared", Pushes::orderlyShared);
        all.put("push_broadcast", Pushes::broadcast);
        all.put("push_first", context -> from(context, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET));
        all.put("push_last", context -> from(context, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET));
        all.put("push_timestamp", context -> from(context, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP));
        all.put("push_last_empty", context -> fromEmpty(context, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET));
        all.put("push_timestamp_empty", context -> fromEmpty(context, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP));
        all.put("push_tags", Pushes::tags);
        all.put("push_batches", Pushes::batches);
        all.put("push_waits", Pushes::waits);
        all.put("push_rebalance", Pushes::rebalance);
        all.put("push_restart", Pushes::restart);
        all.put("push_namespace", Pushes::namespace);
        all.put("push_two_groups", Pushes::twoGroups);
        all.put("push_trace_off", Pushes::traceOff);
        all.put("push_vip", Pushes::vip);
        if (ClientRelease.IS_5) {
            all.put("push_heartbeat_v2", Pushes::heartbeatV2);
            all.put("push_assigned_by_broker", context -> assigned(context, new AllocateMessageQueueAveragely()));
            all.put("push_assigned_by_circle", context -> assigned(context, new AllocateMessageQueueAveragelyByCircle()));
        }
    }

    /** What listeners got, in the order of the calls. */
    static final class Received {
        private final List<MessageExt> messages = new ArrayList<>();
        private final List<Integer> sizes = new ArrayList<>();

        synchronized void add(List<MessageExt> some) {
            messages.addAll(some);
            sizes.add(some.size());
            notifyAll();
        }

        /** The messages, when there are `count`, and no more within 100 ms; what is there after ten seconds. */
        synchronized List<MessageExt> await(int count) throws InterruptedException {
            long end = System.nanoTime() + 10_000_000_000L;
            while (messages.size() < count && System.nanoTime() < end) {
                wait(100);
            }
            wait(100);
            return new ArrayList<>(messages);
        }

        List<String> bodies() {
            return Sends.bodies(messages);
        }

        MessageListenerConcurrently concurrent() {
            return (some, how) -> {
                add(some);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            };
        }

        MessageListenerOrderly orderly() {
            return (some, how) -> {
                add(some);
                return ConsumeOrderlyStatus.SUCCESS;
            };
        }
    }

    /** A consumer from the first message on, which has no listener and is not started. */
    static DefaultMQPushConsumer consumer(Context context, String group, String topic, String tags) throws Exception {
        DefaultMQPushConsumer consumer = context.ready(new DefaultMQPushConsumer(context.name(group)));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.subscribe(topic, tags);
        context.closing(consumer::shutdown);
        return consumer;
    }

    /** Sends messages `from`, ... `to` - 1 to the queues by turns. */
    static void send(Context context, DefaultMQProducer producer, String topic, int queues, int from, int to) throws Exception {
        for (int i = from; i < to; i++) {
            Message message = new Message(topic, "tag" + i % 3, "key-" + i, String.format("body %02d", i).getBytes());
            producer.send(message, context.queue(topic, i % queues));
        }
    }

    /** The offsets of a consumer's group, as soon as they have a sum. */
    private static List<Object> committed(Context context, DefaultMQPushConsumer consumer, String group, String topic, int queues, long sum)
        throws Exception {
        List<Object> told = null;
        for (int i = 0; i < 100; i++) {
            consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset(); // else only every five seconds
            Thread.sleep(30);
            told = context.offsets(context.name(group), topic, queues);
            if (told.stream().mapToLong(offset -> offset instanceof Long ? (Long) offset : 0).sum() >= sum) {
                break;
            }
        }
        return told;
    }

    private static Object concurrent(Context context) throws Exception {
        String topic = context.topic("orders", 4);
        send(context, context.producer(), topic, 4, 0, 12);
        Received received = new Received();
        DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
        consumer.setMessageListener(received.concurrent());
        consumer.start();
        List<MessageExt> got = received.await(12);
        return Context.map("messages", context.plain(got), "offsets", committed(context, consumer, "group", topic, 4, 12), "retry",
            context.queues("%RETRY%" + context.name("group")));
    }

    private static Object orderly(Context context) throws Exception {
        String topic = context.topic("orders", 3);
        DefaultMQProducer producer = context.producer();
        send(context, producer, topic, 3, 0, 15);
        Received received = new Received();
        DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
        consumer.setMessageListener(received.orderly());
        consumer.start();
        received.await(15);
        send(context, producer, topic, 3, 15, 30);
        List<MessageExt> got = received.await(30);
        return Context.map("queues", Sends.byQueue(got, 3), "offsets", committed(context, consumer, "group", topic, 3, 30));
    }

    /** Two orderly consumers: each queue belongs to one of them. */
    private static Object orderlyShared(Context context) throws Exception {
        String topic = context.topic("orders", 4);
        DefaultMQProducer producer = context.producer();
        List<Received> received = List.of(new Received(), new Received());
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (Received one : received) {
            DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
            consumer.setMessageListener(one.orderly());
            consumer.start();
            consumers.add(consumer);
        }
        Object shares = shares(consumers, topic, 2, 2);
        send(context, producer, topic, 4, 0, 20);
        List<MessageExt> all = union(received, "body 00", 20);
        List<Integer> queues = new ArrayList<>();
        for (Received one : received) {
            queues.add((int) one.await(1).stream().map(MessageExt::getQueueId).distinct().count());
        }
        return Context.map("shares", shares, "each", queues, "queues", Sends.byQueue(all, 4));
    }

    private static Object broadcast(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        send(context, context.producer(), topic, 2, 0, 6);
        List<Object> told = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            Received received = new Received();
            DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
            ClientRelease.broadcast(consumer);
            consumer.setMessageListener(received.concurrent());
            consumer.start();
            told.add(Sends.bodies(received.await(6)));
        }
        return Context.map("each", told, "offsets", context.offsets(context.name("group"), topic, 2));
    }

    /** Where a new group begins in a topic with messages. */
    private static Object from(Context context, ConsumeFromWhere where) throws Exception {
        String topic = context.topic("orders", 2);
        DefaultMQProducer producer = context.producer();
        send(context, producer, topic, 2, 0, 4);
        context.stored(topic, 4);
        Received received = new Received();
        DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
        consumer.setConsumeFromWhere(where);
        consumer.setConsumeTimestamp(new SimpleDateFormat("yyyyMMddHHmmss").format(new Date(System.currentTimeMillis() + 3600_000)));
        consumer.setMessageListener(received.concurrent());
        consumer.start();
        Context.until(5000, () -> consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().size() >= 2 ? true : null);
        send(context, producer, topic, 2, 4, 6);
        return Sends.bodies(received.await(6));
    }

    /** Where a new group begins in a topic without messages: only the ones sent after that count. */
    private static Object fromEmpty(Context context, ConsumeFromWhere where) throws Exception {
        String topic = context.topic("orders", 1);
        List<Object> before = context.offsets(context.name("group"), topic, 1);
        Received received = new Received();
        DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
        consumer.setConsumeFromWhere(where);
        consumer.setMessageListener(received.concurrent());
        consumer.start();
        Context.until(5000, () -> consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().size() >= 1 ? true : null);
        send(context, context.producer(), topic, 1, 0, 3);
        return Context.map("before", before, "messages", Sends.bodies(received.await(3)));
    }

    private static Object tags(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        DefaultMQProducer producer = context.producer();
        // "Aa" and "BB" have the same hash code: the client drops what the broker cannot tell apart.
        String[] tags = {"A", "B", "C", "Aa", "BB", null};
        for (int i = 0; i < 12; i++) {
            producer.send(new Message(topic, tags[i % 6], ("body " + i + " " + tags[i % 6]).getBytes()), context.queue(topic, i % 2));
        }
        // The number of messages, and the sum of the offsets: messages behind the last one that matches are not counted.
        Map<String, int[]> expected = new LinkedHashMap<>();
        expected.put("A || B", new int[] {4, 8});
        expected.put("Aa", new int[] {2, 5});
        expected.put("*", new int[] {12, 12});
        expected.put("none", new int[] {0, 12});
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        List<Received> received = new ArrayList<>();
        for (String expression : expected.keySet()) {
            received.add(new Received());
            DefaultMQPushConsumer consumer = consumer(context, "group" + consumers.size(), topic, expression);
            consumer.setMessageListener(received.get(consumers.size()).concurrent());
            consumer.start();
            consumers.add(consumer);
        }
        Map<String, Object> told = new LinkedHashMap<>();
        for (Map.Entry<String, int[]> one : expected.entrySet()) {
            int i = told.size();
            List<String> bodies = Sends.bodies(received.get(i).await(one.getValue()[0]));
            List<Object> offsets = committed(context, consumers.get(i), "group" + i, topic, 2, one.getValue()[1]);
            told.put(one.getKey(), Context.map("messages", bodies, "offsets", offsets));
        }
        return told;
    }

    private static Object batches(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        send(context, context.producer(), topic, 1, 0, 50);
        context.stored(topic, 50);
        Received received = new Received();
        DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
        consumer.setConsumeMessageBatchMaxSize(10);
        consumer.setPullBatchSize(25);
        consumer.setConsumeThreadMax(1);
        consumer.setConsumeThreadMin(1);
        consumer.setMessageListener(received.concurrent());
        consumer.start();
        List<MessageExt> got = received.await(50);
        return Context.map("count", got.size(), "sizes", received.sizes, "offsets", committed(context, consumer, "group", topic, 1, 50));
    }

    /** A message that arrives while the pull request waits at the broker. */
    private static Object waits(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        DefaultMQProducer producer = context.producer();
        Received received = new Received();
        DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
        consumer.setMessageListener(received.concurrent());
        consumer.start();
        Thread.sleep(1500);
        List<Object> told = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            long start = System.nanoTime();
            send(context, producer, topic, 1, i, i + 1);
            synchronized (received) {
                while (received.messages.size() <= i && System.nanoTime() - start < 5_000_000_000L) {
                    received.wait(100);
                }
            }
            told.add(System.nanoTime() - start < 1_000_000_000L ? "within a second" : "late");
        }
        return told;
    }

    /** How many queues each consumer has, as soon as these are the given numbers; what there is after 15 seconds. */
    private static List<Integer> shares(List<DefaultMQPushConsumer> consumers, String topic, Integer... wanted) throws Exception {
        for (int i = 0;; i++) {
            List<Integer> shares = new ArrayList<>();
            for (DefaultMQPushConsumer consumer : consumers) {
                shares.add((int) consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                    .filter(queue -> queue.getTopic().equals(topic)).count());
            }
            shares.sort(null);
            if (shares.equals(Arrays.asList(wanted)) || i == 1500) {
                return shares;
            }
            Thread.sleep(10);
        }
    }

    /** Three consumers share six queues; one of them loses its connections and says nothing. */
    private static Object rebalance(Context context) throws Exception {
        String topic = context.topic("orders", 6);
        DefaultMQProducer producer = context.producer();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        List<Received> received = List.of(new Received(), new Received(), new Received());
        for (int i = 0; i < 3; i++) {
            DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
            consumer.setMessageListener(received.get(i).concurrent());
            consumer.start();
            consumers.add(consumer);
        }
        Object three = shares(consumers, topic, 2, 2, 2);
        send(context, producer, topic, 6, 0, 12);
        List<Integer> counts = new ArrayList<>();
        for (Received one : received) {
            counts.add(one.await(4).size());
        }
        consumers.remove(2).getDefaultMQPushConsumerImpl().getmQClientFactory().getMQClientAPIImpl().getRemotingClient().shutdown();
        Object two = shares(consumers, topic, 3, 3);
        send(context, producer, topic, 6, 12, 24);
        // A message of the third consumer whose offset was not committed comes again; that depends on the time.
        List<String> later = Sends.bodies(union(received.subList(0, 2), "body 12", 12)).stream().distinct().collect(Collectors.toList());
        return Context.map("three", three, "counts", counts, "two", two, "later", later);
    }

    /** The messages of several listeners from a body on, as soon as there are `count`; what is there after 15 seconds. */
    private static List<MessageExt> union(List<Received> received, String from, int count) throws Exception {
        for (int i = 0;; i++) {
            List<MessageExt> all = new ArrayList<>();
            for (Received one : received) {
                synchronized (one) {
                    all.addAll(one.messages);
                }
            }
            all.removeIf(message -> Context.text(message).compareTo(from) < 0);
            if (all.size() >= count || i == 1500) {
                return all;
            }
            Thread.sleep(10);
        }
    }

    private static Object restart(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        DefaultMQProducer producer = context.producer();
        List<Object> told = new ArrayList<>();
        for (int life = 0; life < 2; life++) {
            send(context, producer, topic, 2, 4 * life, 4 * life + 4);
            Received received = new Received();
            DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
            consumer.setMessageListener(received.concurrent());
            consumer.start();
            received.await(4);
            told.add(Context.map("messages", received.bodies(), "offsets", committed(context, consumer, "group", topic, 2, 4 * life + 4)));
            consumer.shutdown();
        }
        return told;
    }

    private static Object namespace(Context context) throws Exception {
        String topic = context.name("orders");
        DefaultMQProducer producer = new DefaultMQProducer(context.name("producer"));
        producer.setNamespace("space");
        context.started(producer);
        producer.send(Context.message(topic, "in a namespace"));
        context.route("space%" + topic);
        Received received = new Received();
        DefaultMQPushConsumer consumer = context.ready(new DefaultMQPushConsumer(context.name("group")));
        context.closing(consumer::shutdown);
        consumer.setNamespace("space");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.setMessageListener(received.concurrent());
        consumer.start();
        List<MessageExt> got = received.await(1);
        return Context.map("messages", context.plain(got), "retry", context.queues("%RETRY%space%" + context.name("group")));
    }

    private static Object twoGroups(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        send(context, context.producer(), topic, 2, 0, 4);
        List<Object> told = new ArrayList<>();
        for (String group : new String[] {"first", "second"}) {
            Received received = new Received();
            DefaultMQPushConsumer consumer = consumer(context, group, topic, group.equals("first") ? "*" : "tag1");
            consumer.setMessageListener(received.concurrent());
            consumer.start();
            told.add(Sends.bodies(received.await(group.equals("first") ? 4 : 1)));
        }
        return told;
    }

    /** Message trace is off unless a client turns it on: the topic for it does not even exist. */
    private static Object traceOff(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        send(context, context.producer(), topic, 1, 0, 1);
        Received received = new Received();
        DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
        consumer.setMessageListener(received.concurrent());
        consumer.start();
        List<MessageExt> got = received.await(1);
        Map<String, Object> route = context.told(context.nameServer, 105, Map.of("topic", "RMQ_SYS_TRACE_TOPIC"), null);
        return Context.map("trace on", got.get(0).getProperty("TRACE_ON"), "route", route.get("code"));
    }

    private static Object vip(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        send(context, context.producer(), topic, 2, 0, 4);
        Received received = new Received();
        DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
        consumer.setVipChannelEnabled(true);
        consumer.setMessageListener(received.orderly()); // locks go through the VIP channel too
        consumer.start();
        List<MessageExt> got = received.await(4);
        return Context.map("queues", Sends.byQueue(got, 2), "offsets", committed(context, consumer, "group", topic, 2, 4));
    }

    private static Object heartbeatV2(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        DefaultMQProducer producer = context.producer();
        send(context, producer, topic, 2, 0, 4);
        Received received = new Received();
        DefaultMQPushConsumer consumer = consumer(context, "group", topic, "*");
        ClientRelease.heartbeatV2(consumer);
        consumer.setHeartbeatBrokerInterval(500);
        consumer.setMessageListener(received.concurrent());
        consumer.start();
        received.await(4);
        Thread.sleep(1500); // heartbeats without subscriptions
        send(context, producer, topic, 2, 4, 8);
        return Sends.bodies(received.await(8));
    }

    /** Two consumers that ask the broker for their queues: the messages of each. */
    private static Object assigned(Context context, AllocateMessageQueueStrategy strategy) throws Exception {
        String topic = context.topic("orders", 5);
        Received[] received = {new Received(), new Received()};
        DefaultMQPushConsumer[] consumers = new DefaultMQPushConsumer[2];
        for (int i = 0; i < consumers.length; i++) {
            consumers[i] = consumer(context, "group", topic, "*");
            ClientRelease.assignedByBroker(consumers[i]);
            consumers[i].setInstanceName(context.name("member-" + i));
            consumers[i].setAllocateMessageQueueStrategy(strategy);
            consumers[i].setMessageListener(received[i].concurrent());
            consumers[i].start();
        }
        long end = System.nanoTime() + 10_000_000_000L;
        while ((queues(consumers[0], topic) != 3 || queues(consumers[1], topic) != 2) && System.nanoTime() < end) {
            Thread.sleep(10);
        }
        send(context, context.producer(), topic, 5, 0, 10);
        while (received[0].bodies().size() + received[1].bodies().size() < 10 && System.nanoTime() < end) {
            Thread.sleep(10);
        }
        return Arrays.asList(received[0].bodies(), received[1].bodies());
    }

    /** The number of queues that a consumer has of a topic. */
    private static long queues(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic)).count();
    }
}
