import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Look-ups of messages by key, id and offset, and of offsets by time. */
final class Lookups {
    private Lookups() {}

    static void register(Map<String, Clients.Scenario> all) {
        all.put("query_key", Lookups::byKey);
        all.put("query_unique_key", Lookups::byUniqueKey);
        all.put("query_offset_id", Lookups::byOffsetId);
        all.put("query_offsets", Lookups::offsets);
    }

    /** Waits for the index: entries are made after the answer to the send. */
    private static Object query(Context context, DefaultMQProducer producer, String topic, String key, int max, int wanted) {
        return context.attempt(() -> {
            for (int i = 0;; i++) {
                List<String> found = List.of();
                try {
                    found = producer.queryMessage(topic, key, max, 0, System.currentTimeMillis() + 60000).getMessageList().stream()
                        .map(Context::text).collect(Collectors.toList());
                } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                    if (wanted == 0 || i == 100) {
                        throw e;
                    }
                }
                if (found.size() >= wanted || i == 100) {
                    return found;
                }
                Thread.sleep(20);
            }
        });
    }

    private static Object byKey(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        DefaultMQProducer producer = context.producer();
        for (int i = 0; i < 6; i++) {
            // "Aa" and "BB" have the same hash code.
            String keys = "all part" + i % 2 + (i == 0 ? " Aa" : i == 1 ? " BB" : "");
            producer.send(new Message(topic, "tag", keys, ("body " + i).getBytes()));
        }
        return Context.map("all", query(context, producer, topic, "all", 32, 6), "part1", query(context, producer, topic, "part1", 32, 3), "Aa",
            query(context, producer, topic, "Aa", 32, 1), "BB", query(context, producer, topic, "BB", 32, 1), "two", query(context, producer, topic, "all", 2, 2), "none",
            query(context, producer, topic, "none", 32, 0), "other topic", query(context, producer, context.name("other"), "all", 32, 0));
    }

    private static Object byUniqueKey(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        DefaultMQProducer producer = context.producer();
        producer.send(new Message(topic, "tag", "key", "other".getBytes()));
        SendResult sent = producer.send(new Message(topic, "tag", "key", "wanted".getBytes()));
        // The id of a broker that does not exist, in the form of a unique key.
        String unknown = sent.getMsgId().substring(0, 28) + "FFFF";
        Object found = Context.until(5000, () -> {
            Object answer = context.attempt(() -> context.whole(producer.viewMessage(topic, sent.getMsgId())));
            return answer.toString().contains("wanted") ? answer : null;
        });
        return Context.map("found", found, "same id", context.attempt(() -> producer.viewMessage(topic, sent.getMsgId()).getMsgId().equals(sent.getMsgId())),
            "unknown", context.attempt(() -> context.whole(producer.viewMessage(topic, unknown))));
    }

    private static Object byOffsetId(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        DefaultMQProducer producer = context.producer();
        SendResult sent = producer.send(new Message(topic, "tag", "key", "wanted".getBytes()));
        String id = sent.getOffsetMsgId();
        MessageExt found = producer.viewMessage(topic, id);
        Map<String, Object> view = context.told(context.broker(), 33, Map.of("offset", String.valueOf(1L << 40)), null);
        Map<String, Object> inside = context.told(context.broker(), 33, Map.of("offset", String.valueOf(found.getCommitLogOffset() + 1)), null);
        for (Map<String, Object> answer : List.of(view, inside)) {
            // The remark ends with the offset.
            answer.put("remark", String.valueOf(answer.get("remark")).replaceAll("[0-9]+", "N"));
        }
        return Context.map("found", context.whole(found), "same id", found.getMsgId().equals(id), "behind the log", view,
            "inside a record", inside);
    }

    private static Object offsets(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        DefaultMQProducer producer = context.producer();
        MessageQueue queue = context.queue(topic, 0);
        for (int i = 0; i < 4; i++) {
            producer.send(Context.message(topic, "body " + i), queue);
            Thread.sleep(60);
        }
        List<Long> times = context.stored(topic, 4).stream().map(MessageExt::getStoreTimestamp).collect(Collectors.toList());
        DefaultMQPullConsumer consumer = context.puller("group");
        Map<String, Object> told = Context.map("min", consumer.minOffset(queue), "max", consumer.maxOffset(queue));
        Map<String, Long> asked = new LinkedHashMap<>();
        asked.put("0", 0L);
        asked.put("hour before", times.get(0) - 3_600_000);
        asked.put("before", times.get(0) - 1);
        asked.put("first", times.get(0));
        asked.put("after first", times.get(0) + 1);
        asked.put("before second", times.get(1) - 1);
        asked.put("second", times.get(1));
        asked.put("last", times.get(3));
        asked.put("after last", times.get(3) + 1);
        asked.put("hour after", times.get(3) + 3_600_000);
        asked.put("negative", -1L);
        asked.forEach((name, time) -> told.put("search " + name, context.attempt(() -> consumer.searchOffset(queue, time))));
        asked.forEach((name, time) -> told.put("upper " + name, context.attempt(() -> context.told(context.broker(), 29,
            Map.of("topic", topic, "queueId", "0", "timestamp", String.valueOf(time), "boundaryType", "UPPER"), null))));
        told.put("earliest is the first", producer.earliestMsgStoreTime(queue) == times.get(0));
        MessageQueue empty = context.queue(topic, 1);
        told.put("empty queue", Context.map("min", consumer.minOffset(empty), "max", consumer.maxOffset(empty), "search",
            consumer.searchOffset(empty, 0), "search later", consumer.searchOffset(empty, times.get(3)), "earliest",
            context.attempt(() -> producer.earliestMsgStoreTime(empty))));
        MessageQueue wrong = context.queue(topic, 9);
        MessageQueue unknown = context.queue(context.name("unknown"), 0);
        for (MessageQueue other : new ArrayList<>(List.of(wrong, unknown))) {
            told.put(other == wrong ? "wrong queue" : "unknown topic", Context.map("min", context.attempt(() -> consumer.minOffset(other)), "max",
                context.attempt(() -> consumer.maxOffset(other)), "search", context.attempt(() -> consumer.searchOffset(other, 0)), "earliest",
                context.attempt(() -> producer.earliestMsgStoreTime(other))));
        }
        return told;
    }
}
