import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Timed messages: each way to say when a message is due, what is refused, and when the others are delivered. */
final class Timed {
    private static final long STEP = 1000; // timerPrecisionMs

    private Timed() {
    }

    static void register(Map<String, Clients.Scenario> all) {
        all.put("send_timed", Timed::timed);
    }

    private static Message message(String topic, String body) {
        return new Message(topic, "web", "key-" + body, body.getBytes());
    }

    private static Object timed(Context context) throws Exception {
        String topic = context.topic("timed", 1);
        DefaultMQProducer producer = context.producer();
        long began = System.currentTimeMillis();
        List<Object> sent = new ArrayList<>();
        Message seconds = message(topic, "4 s");
        seconds.setDelayTimeSec(4);
        Message millis = message(topic, "2500 ms");
        millis.setDelayTimeMs(2500);
        Message moment = message(topic, "at 6 s");
        moment.setDeliverTimeMs(began + 6000);
        Message past = message(topic, "past");
        past.setDeliverTimeMs(began - 60_000);
        for (Message one : List.of(seconds, millis, moment, past)) {
            Map<String, Object> told = context.sent(producer.send(one));
            told.remove("queueOffset"); // of the broker's own topic, which other scenarios share
            sent.add(told);
        }
        List<Object> refused = new ArrayList<>();
        Message late = message(topic, "late");
        late.setDelayTimeSec(3 * 86_400 + 60);
        refused.add(context.attempt(() -> context.sent(producer.send(late))));
        Message far = message(topic, "far");
        far.setDeliverTimeMs(began + 4 * 86_400_000L);
        refused.add(context.attempt(() -> context.sent(producer.send(far))));

        List<MessageExt> found = Context.until(15_000, () -> {
            List<MessageExt> some = context.stored(topic);
            return some.size() >= 4 ? some : null;
        });
        Map<String, Long> due = Map.of("4 s", began + 4000, "2500 ms", began + 2500, "at 6 s", began + 6000, "past", began);
        List<String> early = found.stream()
            .filter(one -> one.getStoreTimestamp() < due.get(new String(one.getBody())) - STEP)
            .map(one -> new String(one.getBody())).collect(Collectors.toList());
        List<MessageExt> ordered = new ArrayList<>(found);
        ordered.sort(Comparator.comparing(MessageExt::getQueueOffset));
        return Context.map("sent", sent, "refused", refused, "early", early,
            "order", ordered.stream().map(one -> new String(one.getBody())).collect(Collectors.toList()),
            "properties", ordered.stream().map(one -> new TreeSet<>(one.getProperties().keySet())).collect(Collectors.toList()));
    }
}
