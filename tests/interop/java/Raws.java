import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import io.netty.channel.ChannelHandlerContext;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.netty.NettyRequestProcessor;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** Requests that no client shows as they are: heartbeats, consumer lists, locks, and what is refused. */
final class Raws {
    private Raws() {}

    static void register(Map<String, Clients.Scenario> all) {
        all.put("consumer_list", Raws::consumerList);
        all.put("consumer_notified", Raws::notified);
        all.put("heartbeat_v1", Raws::heartbeatV1);
        all.put("heartbeat_v2", Raws::heartbeatV2);
        all.put("queue_locks", Raws::locks);
        all.put("client_config", Raws::clientConfig);
        all.put("send_v1", Raws::sendV1);
        all.put("pull_refused", Raws::pullRefused);
        all.put("offsets_refused", Raws::offsetsRefused);
        all.put("unknown_codes", Raws::unknownCodes);
        all.put("name_server", Raws::nameServer);
    }

    /** The body of a heartbeat: a consumer of one topic. */
    static Map<String, Object> heartbeat(Context context, String client, String group, String topic, String tags, long version) {
        List<String> tagsSet = tags.equals("*") ? List.of() : List.of(tags.split(" \\|\\| "));
        List<Integer> codes = new ArrayList<>();
        tagsSet.forEach(tag -> codes.add(tag.hashCode()));
        Map<String, Object> subscription = Context.map("topic", topic, "subString", tags, "tagsSet", tagsSet, "codeSet", codes, "subVersion",
            version, "expressionType", "TAG", "classFilterMode", false);
        Map<String, Object> consumer = Context.map("groupName", context.name(group), "consumeType", "CONSUME_PASSIVELY", "messageModel",
            "CLUSTERING", "consumeFromWhere", "CONSUME_FROM_LAST_OFFSET", "unitMode", false, "subscriptionDataSet",
            new ArrayList<>(List.of(subscription)));
        return Context.map("clientID", client, "producerDataSet", new ArrayList<>(), "consumerDataSet", new ArrayList<>(List.of(consumer)));
    }

    private static RemotingCommand beat(Context context, NettyRemotingClient client, Map<String, Object> body) throws Exception {
        return client.invokeSync(context.broker(), Context.request(34, Map.of(), RemotingSerializable.toJson(body, false)), 5000);
    }

    private static Object list(Context context, String group) throws Exception {
        RemotingCommand answer = context.invoke(context.broker(), 38, Map.of("consumerGroup", context.name(group)), null);
        if (answer.getCode() != 0) {
            return context.told(answer);
        }
        List<String> ids = new ArrayList<>();
        ((List<?>) RemotingSerializable.decode(answer.getBody(), TreeMap.class).get("consumerIdList")).forEach(id -> ids.add((String) id));
        ids.sort(null);
        return ids;
    }

    private static Object consumerList(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        Map<String, Object> told = Context.map("unknown", list(context, "group"));
        NettyRemotingClient one = context.connection();
        NettyRemotingClient two = context.connection();
        beat(context, one, heartbeat(context, "client-one", "group", topic, "*", 1));
        beat(context, two, heartbeat(context, "client-two", "group", topic, "*", 1));
        told.put("two", list(context, "group"));
        told.put("unregister", context.told(one.invokeSync(context.broker(), Context.request(35, Map.of("clientID", "client-one",
            "consumerGroup", context.name("group")), null), 5000)));
        told.put("one", list(context, "group"));
        told.put("unregister again", context.told(one.invokeSync(context.broker(), Context.request(35, Map.of("clientID", "client-one",
            "consumerGroup", context.name("group")), null), 5000)));
        two.shutdown(); // closes the connection
        Object none = null;
        for (int i = 0; i < 300 && !(none instanceof Map); i++) {
            Thread.sleep(10);
            none = list(context, "group");
        }
        told.put("none", none);
        told.put("retry", context.queues("%RETRY%" + context.name("group")));
        return told;
    }

    /** Counts the notifications (40) of a connection; answers nothing to any request. */
    private static AtomicInteger counted(NettyRemotingClient client) {
        AtomicInteger count = new AtomicInteger();
        ExecutorService executor = Executors.newSingleThreadExecutor(work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            return thread;
        });
        client.registerProcessor(40, new NettyRequestProcessor() {
            @Override
            public RemotingCommand processRequest(ChannelHandlerContext channel, RemotingCommand request) {
                count.incrementAndGet();
                return null;
            }

            @Override
            public boolean rejectRequest() {
                return false;
            }
        }, executor);
        return count;
    }

    /** Who learns that the consumers of a group changed. */
    private static Object notified(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        String other = context.topic("other", 1);
        NettyRemotingClient one = context.connection();
        NettyRemotingClient two = context.connection();
        AtomicInteger first = counted(one);
        AtomicInteger second = counted(two);
        Map<String, Object> told = new LinkedHashMap<>();
        beat(context, one, heartbeat(context, "client-one", "group", topic, "*", 1));
        told.put("first joins", counts(first, second));
        beat(context, two, heartbeat(context, "client-two", "group", topic, "*", 1));
        told.put("second joins", counts(first, second));
        beat(context, two, heartbeat(context, "client-two", "group", topic, "*", 1));
        told.put("same again", counts(first, second));
        beat(context, two, heartbeat(context, "client-two", "group", topic, "A", 2));
        told.put("other tags", counts(first, second));
        beat(context, two, heartbeat(context, "client-two", "group", other, "*", 3));
        told.put("other topic", counts(first, second));
        two.shutdown();
        for (int i = 0; i < 300 && first.get() == 0; i++) {
            Thread.sleep(10); // the connection may close a little later
        }
        told.put("second leaves", counts(first, second));
        return told;
    }

    private static List<Integer> counts(AtomicInteger first, AtomicInteger second) throws Exception {
        Thread.sleep(300);
        return List.of(first.getAndSet(0), second.getAndSet(0));
    }

    private static Object heartbeatV1(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        NettyRemotingClient client = context.connection();
        List<Object> told = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            told.add(context.told(beat(context, client, heartbeat(context, "client", "group", topic, "*", 1))));
        }
        told.add(context.told(beat(context, client, Context.map("clientID", "client", "producerDataSet",
            List.of(Context.map("groupName", context.name("producer"))), "consumerDataSet", List.of()))));
        for (String body : new String[] {"{}", "[]", "not JSON", "{\"clientID\":5,\"unknown\":[1]}", null}) {
            RemotingCommand answer = client.invokeSync(context.broker(), Context.request(34, Map.of(), body), 5000);
            told.add(Context.map("body", body, "code", answer.getCode())); // the remark is Java's exception
        }
        return told;
    }

    /** Heartbeats with a fingerprint, with and without subscriptions. */
    private static Object heartbeatV2(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        NettyRemotingClient client = context.connection();
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("full", v2(context, client, topic, 77, false));
        told.put("same", v2(context, client, topic, 77, true));
        told.put("other fingerprint", v2(context, client, topic, 78, true));
        told.put("list", list(context, "group"));
        told.put("full again", v2(context, client, topic, 78, false));
        told.put("same again", v2(context, client, topic, 78, true));
        told.put("unknown client", v2(context, context.connection(), topic, 99, true));
        return told;
    }

    private static Object v2(Context context, NettyRemotingClient client, String topic, int fingerprint, boolean without) throws Exception {
        Map<String, Object> body = heartbeat(context, "client", "group", topic, "*", 1);
        body.put("heartbeatFingerprint", fingerprint);
        body.put("withoutSub", without);
        if (without) {
            ((Map<String, Object>) ((List<Map<String, Object>>) body.get("consumerDataSet")).get(0)).put("subscriptionDataSet", new ArrayList<>());
        }
        return context.told(beat(context, client, body));
    }

    private static Object locks(Context context) throws Exception {
        String topic = context.topic("orders", 3);
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("one takes 0 and 1", lock(context, 41, "one", topic, 0, 1));
        told.put("two asks for all", lock(context, 41, "two", topic, 0, 1, 2));
        told.put("one asks again", lock(context, 41, "one", topic, 0, 1, 2));
        told.put("two gives back 0", lock(context, 42, "two", topic, 0));
        told.put("two still has not 0", lock(context, 41, "two", topic, 0));
        told.put("one gives back 0", lock(context, 42, "one", topic, 0));
        told.put("two has 0", lock(context, 41, "two", topic, 0));
        told.put("no such queue", lock(context, 41, "one", topic, 9));
        told.put("none", lock(context, 41, "one", topic));
        return told;
    }

    private static Object lock(Context context, int code, String client, String topic, int... queues) throws Exception {
        List<Object> set = new ArrayList<>();
        for (int queue : queues) {
            set.add(Context.map("topic", topic, "brokerName", context.queue(topic, 0).getBrokerName(), "queueId", queue));
        }
        String body = RemotingSerializable.toJson(Context.map("consumerGroup", context.name("group"), "clientId", client, "mqSet", set), false);
        RemotingCommand answer = context.invoke(context.broker(), code, Map.of(), body);
        List<Object> ids = new ArrayList<>();
        if (answer.getBody() != null) {
            for (Object queue : (List<?>) RemotingSerializable.decode(answer.getBody(), TreeMap.class).get("lockOKMQSet")) {
                ids.add(((Map<?, ?>) queue).get("queueId"));
            }
            ids.sort(null);
        }
        return Context.map("code", answer.getCode(), "locked", answer.getBody() == null ? null : ids);
    }

    private static Object clientConfig(Context context) throws Exception {
        List<Object> told = new ArrayList<>();
        for (String[] one : new String[][] {{"TAG", "A || B"}, {"SQL92", "a > 1"}, {"SQL92", "a >"}}) {
            String body = RemotingSerializable.toJson(Context.map("clientId", "client", "group", context.name("group"), "subscriptionData",
                Context.map("topic", context.name("orders"), "subString", one[1], "expressionType", one[0])), false);
            told.add(List.of(one[0], one[1], context.told(context.broker(), 46, Map.of(), body)));
        }
        return told;
    }

    /** SEND_MESSAGE, the form with long names. */
    private static Object sendV1(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        Map<String, String> fields = Context.fields("producerGroup", "producers", "topic", topic, "defaultTopic", "TBW102",
            "defaultTopicQueueNums", 4, "queueId", 0, "sysFlag", 0, "bornTimestamp", 1700000000000L, "flag", 5, "properties",
            "TAGS\u0001web\u0002KEYS\u0001a b\u0002own\u0001x", "reconsumeTimes", 0, "unitMode", false, "batch", false);
        Object first = context.told(context.broker(), 10, fields, "by long names");
        fields.keySet().removeAll(List.of("reconsumeTimes", "unitMode", "batch", "properties"));
        Object second = context.told(context.broker(), 10, fields, "without optional fields");
        return Context.map("first", first, "second", second, "empty body", context.told(context.broker(), 10, fields, null), "stored",
            context.whole(context.stored(topic, 2)));
    }

    private static Map<String, String> pull(Context context, String topic, Object... changes) {
        return context.pulling("group", topic, changes);
    }

    private static Object pullRefused(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        String broker = context.broker();
        Pushes.send(context, context.producer(), topic, 1, 0, 1);
        context.stored(topic, 1);
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("found", context.told(broker, 11, pull(context, topic), null));
        told.put("lite", context.told(broker, 361, pull(context, topic, "sysFlag", 20), null));
        told.put("no subscription known", context.told(broker, 11, pull(context, topic, "sysFlag", 0), null));
        told.put("empty expression", context.told(broker, 11, pull(context, topic, "subscription", ""), null));
        told.put("only a separator", context.told(broker, 11, pull(context, topic, "subscription", "||"), null));
        told.put("SQL92", context.told(broker, 11, pull(context, topic, "subscription", "a > 1", "expressionType", "SQL92"), null));
        told.put("unknown type", context.told(broker, 11, pull(context, topic, "expressionType", "OTHER"), null));
        told.put("queue 1", context.told(broker, 11, pull(context, topic, "queueId", 1), null));
        told.put("queue -1", context.told(broker, 11, pull(context, topic, "queueId", -1), null));
        told.put("unknown topic", context.told(broker, 11, pull(context, context.name("unknown")), null));
        told.put("no messages wanted", context.told(broker, 11, pull(context, topic, "maxMsgNums", 0), null));
        told.put("at the end", context.told(broker, 11, pull(context, topic, "queueOffset", 1), null));
        NettyRemotingClient client = context.connection();
        beat(context, client, heartbeat(context, "client", "group", topic, "tag0", 10));
        told.put("from the heartbeat", context.told(broker, 11, pull(context, topic, "sysFlag", 0, "subVersion", 10), null));
        told.put("older heartbeat", context.told(broker, 11, pull(context, topic, "sysFlag", 0, "subVersion", 11), null));
        told.put("not subscribed", context.told(broker, 11, pull(context, context.topic("other", 1), "sysFlag", 0), null));
        told.put("commits", context.told(broker, 11, pull(context, topic, "sysFlag", 5, "commitOffset", 1), null));
        told.put("committed", context.offsets(context.name("group"), topic, 1, 1));
        return told;
    }

    private static Object offsetsRefused(Context context) throws Exception {
        String topic = context.topic("orders", 1);
        String broker = context.broker();
        String group = context.name("group");
        String unknown = context.name("unknown");
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("query, empty topic", context.told(broker, 14, Map.of("consumerGroup", group, "topic", topic, "queueId", "0"), null));
        told.put("query, unknown topic", context.told(broker, 14, Map.of("consumerGroup", group, "topic", unknown, "queueId", "0"), null));
        told.put("query, wrong queue", context.told(broker, 14, Map.of("consumerGroup", group, "topic", topic, "queueId", "9"), null));
        told.put("query, not zero", context.told(broker, 14, Map.of("consumerGroup", group, "topic", topic, "queueId", "0", "setZeroIfNotFound", "false"), null));
        Map<String, String> update = new TreeMap<>(Map.of("consumerGroup", group, "topic", topic, "queueId", "0", "commitOffset", "7"));
        told.put("update, new group", context.told(broker, 15, update, null));
        told.put("after it", context.offsets(group, topic, 1));
        update.put("topic", unknown);
        told.put("update, unknown topic", context.told(broker, 15, update, null));
        update.put("topic", topic);
        update.put("queueId", "9");
        told.put("update, wrong queue", context.told(broker, 15, update, null));
        update.put("queueId", "0");
        update.remove("commitOffset");
        told.put("update without offset", context.told(broker, 15, update, null));
        beat(context, context.connection(), heartbeat(context, "client", "group", topic, "*", 1));
        told.put("known group without offset", context.told(broker, 15, update, null));
        update.put("commitOffset", "9");
        told.put("known group", context.told(broker, 15, update, null));
        told.put("offset of it", context.offsets(group, topic, 1));
        update.put("commitOffset", "4");
        told.put("known group, lower", context.told(broker, 15, update, null));
        told.put("lower offset of it", context.offsets(group, topic, 1));
        update.put("queueId", "9");
        told.put("known group, wrong queue", context.told(broker, 15, update, null));
        update.remove("queueId");
        told.put("known group without queue", context.told(broker, 15, update, null));
        update.put("queueId", "0");
        update.put("topic", unknown);
        told.put("known group, unknown topic", context.told(broker, 15, update, null));
        for (int code : new int[] {29, 30, 31, 32}) {
            Map<String, String> fields = new TreeMap<>(Map.of("topic", unknown, "queueId", "0"));
            if (code == 29) {
                fields.put("timestamp", "0");
            }
            told.put(code + ", unknown topic", context.told(broker, code, fields, null));
            fields.put("topic", topic);
            fields.put("queueId", "9");
            told.put(code + ", wrong queue", context.told(broker, code, fields, null));
        }
        return told;
    }

    private static Object unknownCodes(Context context) throws Exception {
        Map<String, Object> told = new LinkedHashMap<>();
        for (int code : new int[] {9999, 0, -1}) {
            told.put("broker " + code, context.attempt(() -> context.told(context.broker(), code, Map.of(), null)));
            told.put("name server " + code, context.attempt(() -> context.told(context.nameServer, code, Map.of(), null)));
        }
        String broker = context.broker();
        int port = Integer.parseInt(broker.substring(broker.lastIndexOf(':') + 1));
        String vip = broker.substring(0, broker.lastIndexOf(':') + 1) + (port - 2);
        String topic = context.topic("orders", 1);
        told.put("pull from the VIP port", context.attempt(() -> context.told(vip, 11, pull(context, topic), null)));
        return told;
    }

    private static Object nameServer(Context context) throws Exception {
        String server = context.nameServer;
        String space = context.name("space");
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("route of unknown", context.told(server, 105, Map.of("topic", context.name("unknown")), null));
        told.put("get", context.told(server, 101, Map.of("namespace", space, "key", "k"), null));
        told.put("put", context.told(server, 100, Map.of("namespace", space, "key", "k", "value", "v 1"), null));
        told.put("get again", context.told(server, 101, Map.of("namespace", space, "key", "k"), null));
        told.put("other key", context.told(server, 101, Map.of("namespace", space, "key", "other"), null));
        told.put("delete", context.told(server, 102, Map.of("namespace", space, "key", "k"), null));
        told.put("get at last", context.told(server, 101, Map.of("namespace", space, "key", "k"), null));
        return told;
    }
}
