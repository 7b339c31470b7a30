import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pull consumers, the old one and the lite one. */
final class Pulls {
    private Pulls() {}

    static void register(Map<String, Clients.Scenario> all) {
        all.put("pull_statuses", Pulls::statuses);
        all.put("pull_counts", Pulls::counts);
        all.put("pull_waits", Pulls::waits);
        all.put("pull_offsets", Pulls::offsets);
        all.put("lite_assign", Pulls::assign);
        all.put("lite_subscribe", Pulls::subscribe);
        all.put("lite_seek", Pulls::seek);
        all.put("lite_restart", Pulls::restart);
    }

    private static Object told(Context context, PullResult result) {
        return Context.map("status", result.getPullStatus().name(), "next", result.getNextBeginOffset(), "min", result.getMinOffset(),
            "max", result.getMaxOffset(), "messages",
            result.getMsgFoundList() == null ? null : context.whole(result.getMsgFoundList()));
    }

    private static Object statuses(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        Pushes.send(context, context.producer(), topic, 1, 0, 3); // all to queue 0
        context.stored(topic, 3);
        DefaultMQPullConsumer consumer = context.puller("group");
        MessageQueue queue = context.queue(topic, 0);
        Map<String, Object> told = Context.map("found", context.attempt(() -> told(context, consumer.pull(queue, "*", 0, 32))));
        told.put("one", context.attempt(() -> told(context, consumer.pull(queue, "*", 1, 1))));
        told.put("tag", context.attempt(() -> told(context, consumer.pull(queue, "tag1 || tag2", 0, 32))));
        told.put("no such tag", context.attempt(() -> told(context, consumer.pull(queue, "none", 0, 32))));
        told.put("at the end", context.attempt(() -> told(context, consumer.pull(queue, "*", 3, 32))));
        told.put("behind the end", context.attempt(() -> told(context, consumer.pull(queue, "*", 4, 32))));
        told.put("far behind", context.attempt(() -> told(context, consumer.pull(queue, "*", 1_000_000, 32))));
        told.put("negative", context.attempt(() -> told(context, consumer.pull(queue, "*", -1, 32))));
        told.put("empty queue", context.attempt(() -> told(context, consumer.pull(context.queue(topic, 1), "*", 0, 32))));
        told.put("empty queue at 5", context.attempt(() -> told(context, consumer.pull(context.queue(topic, 1), "*", 5, 32))));
        told.put("wrong queue", context.attempt(() -> told(context, consumer.pull(context.queue(topic, 9), "*", 0, 32))));
        String unknown = context.name("unknown");
        told.put("unknown topic", context.attempt(() -> told(context, consumer.pull(context.queue(unknown, 0), "*", 0, 32))));
        told.put("queues", context.attempt(() -> consumer.fetchSubscribeMessageQueues(topic).size()));
        told.put("queues of unknown", context.attempt(() -> consumer.fetchSubscribeMessageQueues(unknown).size()));
        return told;
    }

    /** How many messages one request brings: at most 32, whatever it asks for, and not much more than 256 KiB. */
    private static Object counts(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        DefaultMQProducer producer = context.producer();
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        List<Message> small = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            small.add(Context.message(topic, "body " + i));
        }
        producer.send(small, context.queue(topic, 0));
        for (int i = 0; i < 6; i++) {
            producer.send(new Message(topic, new byte[100_000]), context.queue(topic, 1));
        }
        context.stored(topic, 56);
        DefaultMQPullConsumer consumer = context.puller("group");
        List<Object> told = new ArrayList<>();
        for (int wanted : new int[] {1, 10, 32, 100}) {
            told.add(Context.map("wanted", wanted, "small", consumer.pull(context.queue(topic, 0), "*", 0, wanted).getMsgFoundList().size(),
                "large", consumer.pull(context.queue(topic, 1), "*", 0, wanted).getMsgFoundList().size()));
        }
        return told;
    }

    private static Object waits(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        DefaultMQProducer producer = context.producer();
        DefaultMQPullConsumer consumer = context.puller("group");
        MessageQueue queue = context.queue(topic, 0);
        CompletableFuture<PullResult> waiting = CompletableFuture.supplyAsync(() -> {
            try {
                return consumer.pullBlockIfNotFound(queue, "*", 0, 32);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        Thread.sleep(500);
        boolean early = waiting.isDone();
        producer.send(Context.message(topic, "at last"), queue);
        return Context.map("early", early, "result", told(context, waiting.get(5, TimeUnit.SECONDS)));
    }

    private static Object offsets(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        Pushes.send(context, context.producer(), topic, 1, 0, 5);
        context.stored(topic, 5);
        DefaultMQPullConsumer consumer = context.puller("group");
        MessageQueue queue = context.queue(topic, 0);
        String group = context.name("group");
        Map<String, Object> told = Context.map("new group", context.attempt(() -> consumer.fetchConsumeOffset(queue, true)));
        Context.until(5000, () -> context.invoke(context.broker(), 38, Map.of("consumerGroup", group), null).getCode() == 0 ? true : null);
        consumer.updateConsumeOffset(queue, 3); // a broker of 5.x takes offsets only of groups that it knows from a heartbeat
        told.put("in memory", consumer.fetchConsumeOffset(queue, false));
        told.put("not yet", context.offsets(group, topic, 1));
        consumer.getOffsetStore().persist(queue);
        told.put("stored", context.offsets(group, topic, 1, 3));
        consumer.updateConsumeOffset(queue, 1);
        consumer.getOffsetStore().persist(queue);
        told.put("lower", context.offsets(group, topic, 1, 1));
        told.put("search", Context.map("min", consumer.minOffset(queue), "max", consumer.maxOffset(queue), "at 0",
            consumer.searchOffset(queue, 0)));
        return told;
    }

    /** Messages of a lite consumer, until there are `count`; what there is after five seconds. */
    private static List<MessageExt> poll(DefaultLitePullConsumer consumer, int count) {
        List<MessageExt> found = new ArrayList<>();
        for (int i = 0; i < 50 && found.size() < count; i++) {
            found.addAll(consumer.poll(100));
        }
        return found;
    }

    /** The messages of one queue from an offset on. The client may have pulled earlier ones before it was told where to begin. */
    private static List<MessageExt> poll(DefaultLitePullConsumer consumer, int count, long from) {
        Map<Long, MessageExt> found = new TreeMap<>();
        for (int i = 0; i < 50 && found.size() < count; i++) {
            for (MessageExt one : consumer.poll(100)) {
                if (one.getQueueOffset() >= from) {
                    found.put(one.getQueueOffset(), one);
                }
            }
        }
        return new ArrayList<>(found.values());
    }

    private static Object assign(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        Pushes.send(context, context.producer(), topic, 2, 0, 10);
        context.stored(topic, 10);
        DefaultLitePullConsumer consumer = context.lite("group");
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        MessageQueue queue = context.queue(topic, 1);
        consumer.assign(List.of(queue));
        consumer.seek(queue, 2);
        List<MessageExt> got = poll(consumer, 3, 2);
        Object before = context.attempt(() -> consumer.committed(queue));
        consumer.commit(Set.of(queue), true); // commitSync() leaves the offset in memory
        return Context.map("queues", queues.size(), "messages", context.whole(got), "before", before, "stored",
            context.offsets(context.name("group"), topic, 2, 5), "committed", context.attempt(() -> consumer.committed(queue)), "at 0",
            consumer.offsetForTimestamp(queue, 0L));
    }

    private static Object subscribe(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        Pushes.send(context, context.producer(), topic, 2, 0, 12);
        DefaultLitePullConsumer consumer = context.lite("group");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommitIntervalMillis(1000);
        consumer.subscribe(topic, "tag0 || tag2");
        consumer.start();
        List<MessageExt> got = poll(consumer, 8);
        List<MessageExt> none = consumer.poll(1200); // marks the messages before as consumed
        consumer.poll(10); // commits in memory, because a second is over
        consumer.shutdown();
        return Context.map("messages", Sends.bodies(got), "more", none.size(), "offsets",
            context.offsets(context.name("group"), topic, 2, 11)); // the last messages of a queue do not match
    }

    private static Object seek(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        DefaultMQProducer producer = context.producer();
        Pushes.send(context, producer, topic, 1, 0, 4);
        context.stored(topic, 4);
        DefaultLitePullConsumer consumer = context.lite("group");
        consumer.start();
        MessageQueue queue = context.queue(topic, 0);
        consumer.assign(List.of(queue));
        Map<String, Object> told = Context.map("first", Sends.bodies(poll(consumer, 4)));
        consumer.seekToBegin(queue);
        told.put("from the beginning", Sends.bodies(poll(consumer, 4)));
        consumer.seek(queue, 2);
        told.put("from 2", Sends.bodies(poll(consumer, 2)));
        consumer.seekToEnd(queue);
        Pushes.send(context, producer, topic, 1, 4, 5);
        told.put("from the end", Sends.bodies(poll(consumer, 1)));
        told.put("behind", context.attempt(() -> {
            consumer.seek(queue, 99);
            return "allowed";
        }));
        return told;
    }

    private static Object restart(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        DefaultMQProducer producer = context.producer();
        List<Object> told = new ArrayList<>();
        for (int life = 0; life < 2; life++) {
            Pushes.send(context, producer, topic, 2, 4 * life, 4 * life + 4);
            DefaultLitePullConsumer consumer = context.lite("group");
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, "*");
            consumer.start();
            List<MessageExt> got = poll(consumer, 4);
            consumer.poll(10); // marks the messages before as consumed
            consumer.commitSync();
            consumer.shutdown();
            told.add(Context.map("messages", Sends.bodies(got), "offsets", context.offsets(context.name("group"), topic, 2, 4 * life + 4)));
        }
        return told;
    }
}
