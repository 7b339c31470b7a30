import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** Consumers that fail, up to the dead letter, and delayed messages. The broker's delay levels are of seconds. */
final class Retries {
    private Retries() {}

    static void register(Map<String, Clients.Scenario> all) {
        all.put("retry_concurrent", Retries::concurrent);
        all.put("retry_levels", Retries::levels);
        all.put("retry_never", Retries::never);
        all.put("retry_partly", Retries::partly);
        all.put("retry_timeout", Retries::timeout);
        all.put("retry_orderly", Retries::orderly);
        all.put("retry_direct", Retries::direct);
        all.put("send_back", Retries::sendBack);
        all.put("send_back_refused", Retries::sendBackRefused);
        all.put("delay_levels", Retries::delayLevels);
        all.put("delay_refused", Retries::delayRefused);
    }

    /** What a listener gets, in the order of its calls, by the body of the message. */
    private static final class Histories {
        private final Map<String, List<Object>> all = new ConcurrentHashMap<>();
        private final Context context;

        Histories(Context context) {
            this.context = context;
        }

        /** Notes a message; returns how many times it has come before. */
        synchronized int note(MessageExt message) {
            List<Object> one = all.computeIfAbsent(String.valueOf(Context.body(message.getBody())), body -> new ArrayList<>());
            one.add(said(context, message));
            notifyAll();
            return one.size() - 1;
        }

        synchronized Map<String, Object> await(int count) throws Exception {
            long end = System.nanoTime() + 30_000_000_000L;
            while (all.values().stream().mapToInt(List::size).sum() < count && System.nanoTime() < end) {
                wait(100);
            }
            return new TreeMap<>(all);
        }
    }

    /** A message without what differs from run to run. */
    private static Map<String, Object> said(Context context, MessageExt message) {
        Map<String, Object> told = context.plain(message);
        Map<?, ?> properties = (Map<?, ?>) told.get("properties");
        properties.remove("MIN_OFFSET");
        properties.remove("MAX_OFFSET");
        return told;
    }

    private static List<Object> dead(Context context, String group, int count) throws Exception {
        List<Object> told = new ArrayList<>();
        String topic = "%DLQ%" + context.name(group);
        List<MessageExt> found = Context.until(15000, () -> {
            RemotingCommand route = context.invoke(context.nameServer, 105, Map.of("topic", topic), null);
            List<MessageExt> some = route.getCode() == 0 ? context.stored(topic) : List.of();
            return some.size() >= count ? some : null;
        });
        found.stream().sorted(java.util.Comparator.comparing(Context::text)).forEach(message -> told.add(said(context, message)));
        return told;
    }

    /** A consumer of a group whose retry topic exists: else it may begin to pull from it after 20 s. */
    private static DefaultMQPushConsumer consumer(Context context, String topic) throws Exception {
        join(context, context.remoting(), topic);
        context.route("%RETRY%" + context.name("group"));
        context.invoke(context.broker(), 35, Map.of("clientID", "client", "consumerGroup", context.name("group")), null);
        return Pushes.consumer(context, "group", topic, "*");
    }

    private static void send(Context context, DefaultMQProducer producer, String topic, String... bodies) throws Exception {
        for (String body : bodies) {
            Message message = new Message(topic, "tag", "key-" + body, body.getBytes());
            message.setFlag(7);
            message.putUserProperty("own", "x");
            producer.send(message, context.queue(topic, 0));
        }
    }

    private static Object concurrent(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        DefaultMQProducer producer = context.producer();
        send(context, producer, topic, "good", "later", "throws", "null", "dead");
        producer.send(new Message(topic, "tag", new byte[5000]), context.queue(topic, 0)); // compressed
        Histories histories = new Histories(context);
        DefaultMQPushConsumer consumer = consumer(context, topic);
        consumer.setMaxReconsumeTimes(2);
        consumer.setMessageListener((MessageListenerConcurrently) (messages, how) -> {
            String body = Context.text(messages.get(0));
            int before = histories.note(messages.get(0));
            if (body.equals("good")) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            } else if (body.equals("throws") && before == 0) {
                throw new IllegalStateException("on purpose");
            } else if (body.equals("null") && before == 0) {
                return null;
            }
            boolean fails = body.equals("dead") || before == 0;
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return Context.map("histories", histories.await(12), "dead", dead(context, "group", 1), "retry topic",
            context.queues("%RETRY%" + context.name("group")), "dead letters", context.queues("%DLQ%" + context.name("group")));
    }

    /** The listener chooses the level: -1 is a dead letter. */
    private static Object levels(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        send(context, context.producer(), topic, "dead at once", "level 2");
        Histories histories = new Histories(context);
        Map<String, Long> times = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = consumer(context, topic);
        consumer.setMessageListener((MessageListenerConcurrently) (messages, how) -> {
            String body = Context.text(messages.get(0));
            times.put(body + messages.get(0).getReconsumeTimes(), System.nanoTime());
            int before = histories.note(messages.get(0));
            how.setDelayLevelWhenNextConsume(body.equals("level 2") ? 2 : -1);
            return before == 0 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Map<String, Object> all = histories.await(3);
        long waited = (times.get("level 21") - times.get("level 20")) / 1_000_000;
        return Context.map("histories", all, "dead", dead(context, "group", 1), "early", waited < 2000, "late", waited > 4000);
    }

    /** Without retries, the first failure is a dead letter. */
    private static Object never(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        send(context, context.producer(), topic, "one", "two");
        Histories histories = new Histories(context);
        DefaultMQPushConsumer consumer = consumer(context, topic);
        consumer.setMaxReconsumeTimes(0);
        consumer.setMessageListener((MessageListenerConcurrently) (messages, how) -> {
            histories.note(messages.get(0));
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        return Context.map("histories", histories.await(2), "dead", dead(context, "group", 2));
    }

    /** Of a batch, the listener acknowledges the first message. */
    private static Object partly(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        send(context, context.producer(), topic, "a", "b", "c");
        Histories histories = new Histories(context);
        DefaultMQPushConsumer consumer = consumer(context, topic);
        consumer.setConsumeMessageBatchMaxSize(8);
        consumer.setMessageListener((MessageListenerConcurrently) (messages, how) -> {
            int before = 0;
            for (MessageExt message : messages) {
                before = Math.max(before, histories.note(message));
            }
            if (before == 0) {
                how.setAckIndex(Context.text(messages.get(0)).equals("a") ? 0 : -1);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return Context.map("histories", histories.await(5));
    }

    /** A listener that takes too long. The client's own check, which runs once a minute, is called here. */
    private static Object timeout(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        send(context, context.producer(), topic, "slow", "good");
        Histories histories = new Histories(context);
        CountDownLatch end = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(context, topic);
        consumer.setMessageListener((MessageListenerConcurrently) (messages, how) -> {
            if (histories.note(messages.get(0)) == 0 && Context.text(messages.get(0)).equals("slow")) {
                try {
                    end.await(20, TimeUnit.SECONDS);
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        histories.await(2);
        Thread.sleep(50);
        consumer.setConsumeTimeout(0);
        consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().values()
            .forEach(queue -> queue.cleanExpiredMsg(consumer));
        consumer.setConsumeTimeout(15);
        Map<String, Object> all = histories.await(3);
        end.countDown();
        return Context.map("histories", all);
    }

    private static Object orderly(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        send(context, context.producer(), topic, "dead", "throws", "good");
        Histories histories = new Histories(context);
        List<String> order = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = consumer(context, topic);
        consumer.setMaxReconsumeTimes(2);
        consumer.setMessageListener((MessageListenerOrderly) (messages, how) -> {
            String body = Context.text(messages.get(0));
            order.add(body);
            int before = histories.note(messages.get(0));
            how.setSuspendCurrentQueueTimeMillis(50);
            if (body.equals("throws") && before == 0) {
                throw new IllegalStateException("on purpose");
            }
            return body.equals("dead") ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        Map<String, Object> all = histories.await(6);
        return Context.map("histories", all, "order", order, "dead", dead(context, "group", 1));
    }

    /** Makes a group known, without a consumer that pulls. */
    private static void join(Context context, NettyRemotingClient client, String topic) throws Exception {
        client.invokeSync(context.broker(), Context.request(34, Map.of(),
            RemotingSerializable.toJson(Raws.heartbeat(context, "client", "group", topic, "*", 1), false)), 5000);
    }

    /** The answer to a send, without the queue offset: all scenarios share the queues of delayed messages. */
    private static Map<String, Object> answer(Context context, Map<String, String> fields, String body) throws Exception {
        Map<String, Object> told = context.told(context.broker(), 310, fields, body);
        ((Map<?, ?>) told.get("fields")).remove("queueOffset");
        return told;
    }

    /** Plain sends to a retry topic, as clients do if a send-back fails, and for orderly dead letters. */
    private static Object direct(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        String broker = context.broker();
        Map<String, Object> told = new LinkedHashMap<>();
        Map<String, String> fields = context.sendingTo("%RETRY%" + context.name("unknown"));
        told.put("unknown group", answer(context, fields, "unknown group"));
        join(context, context.connection(), topic);
        String retry = "%RETRY%" + context.name("group");
        fields = context.sendingTo(retry);
        fields.put("i", "UNIQ_KEY\u0001K1\u0002DELAY\u00014\u0002RETRY_TOPIC\u0001orders\u0002TRAN_MSG\u0001true");
        fields.put("j", "1");
        fields.put("l", "1");
        told.put("as many as allowed", answer(context, fields, "1 of 1"));
        fields.put("i", "UNIQ_KEY\u0001K1\u0002DELAY\u00014\u0002RETRY_TOPIC\u0001orders");
        fields.put("j", "2");
        told.put("one more", answer(context, fields, "2 of 1"));
        fields.remove("l");
        fields.put("j", "16");
        told.put("16 of the group's", answer(context, fields, "16 of the group's 16"));
        fields.put("j", "17");
        told.put("17 of the group's", answer(context, fields, "17 of the group's 16"));
        fields.put("i", "UNIQ_KEY\u0001K1");
        fields.put("j", "0");
        told.put("without a delay", answer(context, fields, "without a delay"));
        fields.put("e", "1");
        told.put("queue 1", answer(context, fields, "queue 1"));
        fields.put("e", "0");
        fields.put("m", "true");
        told.put("batch", answer(context, fields, "not a batch"));
        fields.put("m", "false");
        Map<String, Object> queue = Context.map("topic", topic, "brokerName", context.queue(topic, 0).getBrokerName(), "queueId", 0);
        context.invoke(broker, 41, Map.of(), RemotingSerializable.toJson(Context.map("consumerGroup", context.name("group"), "clientId",
            "client", "mqSet", List.of(queue)), false));
        fields.put("i", "UNIQ_KEY\u0001K1\u0002DELAY\u00013");
        told.put("of a group with a lock", answer(context, fields, "with a lock"));
        Thread.sleep(2500); // longer than all delays
        told.put("dead", dead(context, "group", 1));
        List<Object> retried = new ArrayList<>();
        context.stored(retry).stream().sorted(java.util.Comparator.comparing(Context::text)).forEach(message -> retried.add(said(context, message)));
        told.put("retried", retried);
        return told;
    }

    private static Map<String, String> back(Context context, long offset, int level, Object... changes) {
        Map<String, String> fields = Context.fields("offset", offset, "group", context.name("group"), "delayLevel", level, "originMsgId",
            "told", "originTopic", "told", "unitMode", false);
        fields.putAll(Context.fields(changes));
        return fields;
    }

    private static Object sendBack(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        String broker = context.broker();
        send(context, context.producer(), topic, "a", "b", "c", "d", "e", "f");
        List<MessageExt> sent = context.stored(topic, 6);
        join(context, context.connection(), topic);
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("broker decides", context.told(broker, 36, back(context, sent.get(0).getCommitLogOffset(), 0), null));
        told.put("level 1", context.told(broker, 36, back(context, sent.get(1).getCommitLogOffset(), 1, "maxReconsumeTimes", 1), null));
        told.put("level 99", context.told(broker, 36, back(context, sent.get(2).getCommitLogOffset(), 99), null));
        told.put("level -1", context.told(broker, 36, back(context, sent.get(3).getCommitLogOffset(), -1), null));
        told.put("none allowed", context.told(broker, 36, back(context, sent.get(4).getCommitLogOffset(), 1, "maxReconsumeTimes", 0), null));
        Map<String, String> few = back(context, sent.get(5).getCommitLogOffset(), 1);
        few.keySet().removeAll(List.of("originMsgId", "originTopic", "unitMode"));
        told.put("only what is needed", context.told(broker, 36, few, null));
        told.put("dead", dead(context, "group", 2));
        String retry = "%RETRY%" + context.name("group");
        List<MessageExt> found = Context.until(15000, () -> {
            List<MessageExt> some = context.stored(retry);
            return some.size() >= 4 ? some : null;
        });
        List<Object> retried = new ArrayList<>();
        List<Object> again = new ArrayList<>();
        found.stream().sorted(java.util.Comparator.comparing(Context::text)).forEach(message -> retried.add(said(context, message)));
        told.put("retried", retried);
        for (MessageExt message : found) { // a second time, to the dead letter
            context.invoke(broker, 36, back(context, message.getCommitLogOffset(), 1, "maxReconsumeTimes", 1), null);
        }
        told.put("dead at last", dead(context, "group", 6));
        for (MessageExt message : found) {
            again.add(message.getProperty("ORIGIN_MESSAGE_ID").equals(sent.get("abcdef".indexOf(Context.text(message))).getMsgId())
                || message.getProperty("ORIGIN_MESSAGE_ID").length() == 32);
        }
        told.put("origin", again);
        return told;
    }

    private static Object sendBackRefused(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        String broker = context.broker();
        send(context, context.producer(), topic, "a");
        long offset = context.stored(topic, 1).get(0).getCommitLogOffset();
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("new group", context.told(broker, 36, back(context, offset, 1), null));
        told.put("invalid group", context.told(broker, 36, back(context, offset, 1, "group", "a b"), null));
        told.put("offset -1", context.told(broker, 36, back(context, -1, 1), null));
        Map<String, Object> inside = context.told(broker, 36, back(context, offset + 1, 1), null);
        told.put("offset inside", Context.map("code", inside.get("code"), "remark", ((String) inside.get("remark")).replaceAll("[0-9]+", "N")));
        told.put("offset at the end", context.told(broker, 36, back(context, 1L << 40, 1), null));
        for (String name : new String[] {"offset", "group", "delayLevel"}) {
            Map<String, String> fields = back(context, offset, 1);
            fields.remove(name);
            told.put("without " + name, context.invoke(broker, 36, fields, null).getCode());
        }
        told.put("level x", context.invoke(broker, 36, back(context, offset, 1, "delayLevel", "x"), null).getCode());
        return told;
    }

    private static Object delayLevels(Context context) throws Exception {
        String topic = context.topic("orders", 2);
        DefaultMQProducer producer = context.producer();
        Map<String, Object> told = new LinkedHashMap<>();
        Map<String, Long> sent = new ConcurrentHashMap<>();
        for (int level : new int[] {0, 1, 2, 18, 99, -1}) {
            Message message = new Message(topic, "tag" + level, "key", ("level " + level).getBytes());
            message.setDelayTimeLevel(level);
            sent.put("level " + level, System.currentTimeMillis());
            SendResult result = producer.send(message, context.queue(topic, 1));
            told.put("level " + level, Context.map("status", result.getSendStatus().name(), "queueId", result.getMessageQueue().getQueueId()));
        }
        List<MessageExt> found = Context.until(15000, () -> {
            List<MessageExt> some = context.stored(topic);
            return some.size() >= 6 ? some : null;
        });
        List<Object> stored = new ArrayList<>();
        found.stream().sorted(java.util.Comparator.comparing(Context::text)).forEach(message -> {
            String body = Context.text(message);
            long waits = Map.of("level 1", 1000L, "level 2", 2000L, "level 18", 3000L, "level 99", 3000L).getOrDefault(body, 0L);
            long waited = message.getStoreTimestamp() - sent.get(body);
            Map<String, Object> one = said(context, message);
            one.put("queueId", message.getQueueId());
            one.put("early", waited < waits);
            one.put("late", waited > waits + 1500);
            stored.add(one);
        });
        told.put("stored", stored);
        return told;
    }

    private static Object delayRefused(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        String broker = context.broker();
        Map<String, Object> told = new LinkedHashMap<>();
        Map<String, String> fields = context.sendingTo(topic);
        for (String level : new String[] {"x", "+1", "", " 1", "01", "99999999999", "-3", "1"}) {
            fields.put("i", "UNIQ_KEY\u0001K1\u0002DELAY\u0001" + level);
            Map<String, Object> answer = answer(context, fields, "level '" + level + "'");
            boolean isNumber = (Integer) answer.get("code") == 0;
            told.put("level '" + level + "'", isNumber ? answer : answer.get("code"));
        }
        fields.put("i", "UNIQ_KEY\u0001K1\u0002DELAY\u00011\u0002TIMER_DELAY_SEC\u000199\u0002TIMER_DELIVER_MS\u00019\u0002REAL_TOPIC\u0001mine\u0002REAL_QID\u00017");
        told.put("level and time", answer(context, fields, "level and time"));
        told.put("to the topic of delayed messages", context.told(broker, 310, context.sendingTo("SCHEDULE_TOPIC_XXXX"), "x"));
        List<MessageExt> found = Context.until(15000, () -> {
            List<MessageExt> some = context.stored(topic);
            return some.size() >= 5 ? some : null;
        });
        Thread.sleep(500);
        List<Object> stored = new ArrayList<>();
        found = context.stored(topic);
        found.stream().sorted(java.util.Comparator.comparing(Context::text)).forEach(message -> stored.add(said(context, message)));
        told.put("stored", stored);
        return told;
    }
}
