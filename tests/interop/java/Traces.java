import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What clients with message trace write about a message that is sent and consumed. */
final class Traces {
    private Traces() {
    }

    static void register(Map<String, Clients.Scenario> all) {
        all.put("trace", Traces::trace);
    }

    private static Object trace(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        String traces = context.topic("traces", 1);
        DefaultMQProducer producer = context.started(new DefaultMQProducer(context.name("shop"), true, traces));
        SendResult sent = producer.send(new Message(topic, "web", "o-1 c-7", "an order".getBytes()));
        DefaultMQPushConsumer consumer = context.ready(new DefaultMQPushConsumer(context.name("billing"), true, traces));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        Pushes.Received received = new Pushes.Received();
        consumer.setMessageListener(received.concurrent());
        consumer.start();
        received.await(1);
        for (int i = 0; i < 100 && kinds(context, traces) < 3; i++) {
            Thread.sleep(100); // 5.x sends the last records every five seconds; those of its end may be lost on a busy machine
        }
        consumer.shutdown();
        producer.shutdown();
        Map<String, String> known = new LinkedHashMap<>();
        known.put(sent.getMsgId(), "the message id");
        known.put(sent.getOffsetMsgId(), "the offset message id");
        return Context.until(30_000, () -> {
            Map<String, Object> records = new LinkedHashMap<>();
            TreeSet<String> keys = new TreeSet<>();
            for (MessageExt message : context.stored(traces)) {
                keys.addAll(List.of(message.getKeys().split(" ")));
                for (String record : new String(message.getBody(), "UTF-8").split("\u0002")) {
                    String[] fields = record.split("\u0001", -1);
                    int duration = fields[0].equals("Pub") ? 10 : fields[0].equals("SubAfter") ? 3 : -1;
                    List<String> shown = new ArrayList<>();
                    for (int i = 0; i < fields.length; i++) {
                        shown.add(i == duration ? "ms" : known.getOrDefault(fields[i], shown(context, fields[i])));
                    }
                    records.put(fields[0], shown);
                }
            }
            if (records.size() < 3) {
                return null;
            }
            List<String> names = new ArrayList<>();
            keys.forEach(key -> names.add(known.getOrDefault(key, key)));
            return Context.map("Pub", records.get("Pub"), "SubBefore", records.get("SubBefore"), "SubAfter", records.get("SubAfter"),
                "keys", new TreeSet<>(names));
        });
    }

    private static int kinds(Context context, String traces) throws Exception {
        TreeSet<String> found = new TreeSet<>();
        for (MessageExt message : context.stored(traces)) {
            for (String record : new String(message.getBody(), "UTF-8").split("\u0002")) {
                found.add(record.split("\u0001", -1)[0]);
            }
        }
        return found.size();
    }

    /** A field without what differs from run to run. */
    private static String shown(Context context, String field) {
        if (field.matches("1[0-9]{12}")) {
            return "a time";
        }
        if (field.matches("[0-9A-F]{32,}")) {
            return "a request id";
        }
        return field.matches("[0-9.]+:[0-9]+") ? "ADDRESS" : context.text(field);
    }
}
