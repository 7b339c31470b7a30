import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** What one scenario uses: fresh names, clients that end with it, plain requests, and the forms of its outcome. */
final class Context {
    /** Properties whose values differ from run to run, or from cluster to cluster. */
    private static final Set<String> VARYING = Set.of("UNIQ_KEY", "CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT",
        "CONSUME_START_TIME", "ORIGIN_MESSAGE_ID", "ARRIVE_TIME", "PUSH_REPLY_TIME", "SEND_TIME");

    final String nameServer;
    private final String prefix;
    private final List<Runnable> closers = new ArrayList<>();
    private int count;
    private NettyRemotingClient remoting;
    private String broker;

    Context(String nameServer, String prefix) {
        this.nameServer = nameServer;
        this.prefix = prefix;
    }

    /** Ends the clients, the last one first. */
    void close() {
        for (int i = closers.size(); --i >= 0;) {
            try {
                closers.get(i).run();
            } catch (RuntimeException e) {
                e.printStackTrace();
            }
        }
    }

    void closing(Runnable closer) {
        closers.add(closer);
    }

    /** A name of a topic or group of this scenario. */
    String name(String end) {
        return prefix + end;
    }

    // Clients

    /** Settings that all clients here have: the name server, and a client instance of their own. */
    synchronized <T extends ClientConfig> T ready(T client) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName(prefix + ++count);
        client.setClientIP("127.0.0.1");
        return client;
    }

    DefaultMQProducer producer() throws Exception {
        return started(new DefaultMQProducer(name("producer")));
    }

    DefaultMQProducer started(DefaultMQProducer producer) throws Exception {
        ready(producer).setSendMsgTimeout(8000);
        producer.start();
        closing(producer::shutdown);
        return producer;
    }

    DefaultMQPullConsumer puller(String group) throws Exception {
        DefaultMQPullConsumer consumer = ready(new DefaultMQPullConsumer(name(group)));
        consumer.start();
        closing(consumer::shutdown);
        return consumer;
    }

    DefaultLitePullConsumer lite(String group) {
        DefaultLitePullConsumer consumer = ready(new DefaultLitePullConsumer(name(group)));
        consumer.setPullThreadNums(2);
        closing(consumer::shutdown);
        return consumer;
    }

    /** Creates a topic with the given number of queues (at most 8), and waits until the name server knows it. */
    String topic(String end, int queues) throws Exception {
        Map<String, String> fields = sending(end);
        fields.put("d", String.valueOf(queues));
        fields.put("e", "9999"); // no such queue: the broker makes the topic, then refuses the message
        told(broker(), 310, fields, "no such queue");
        route(name(end));
        return name(end);
    }

    /** The fields of SEND_MESSAGE_V2 for queue 0 of a topic. */
    Map<String, String> sending(String end) {
        return sendingTo(name(end));
    }

    Map<String, String> sendingTo(String topic) {
        return fields("a", name("producer"), "b", topic, "c", "TBW102", "d", 4, "e", 0, "f", 0, "g", 1700000000000L, "h", 0, "i", "", "j", 0,
            "k", false, "m", false);
    }

    /** The fields of PULL_MESSAGE for 32 messages of queue 0 from its beginning, and changes to them. */
    Map<String, String> pulling(String group, String topic, Object... changes) {
        Map<String, String> made = fields("consumerGroup", name(group), "topic", topic, "queueId", 0, "queueOffset", 0, "maxMsgNums", 32,
            "sysFlag", 4, "commitOffset", 0, "suspendTimeoutMillis", 0, "subscription", "*", "subVersion", 0, "expressionType", "TAG");
        made.putAll(fields(changes));
        return made;
    }

    static Map<String, String> fields(Object... pairs) {
        Map<String, String> made = new HashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            made.put((String) pairs[i], String.valueOf(pairs[i + 1]));
        }
        return made;
    }

    /** The route of a topic, as soon as there is one; fails after five seconds. */
    Map<?, ?> route(String topic) throws Exception {
        return until(5000, () -> {
            RemotingCommand answer = invoke(nameServer, 105, Map.of("topic", topic, "acceptStandardJsonOnly", "true"), null);
            return answer.getCode() == 0 ? RemotingSerializable.decode(answer.getBody(), HashMap.class) : null;
        });
    }

    /** The queues of a topic with their permission, once for each broker. */
    List<Object> queues(String topic) throws Exception {
        List<Object> told = new ArrayList<>();
        for (Object queue : (List<?>) route(topic).get("queueDatas")) {
            Map<?, ?> data = (Map<?, ?>) queue;
            told.add(map("read", data.get("readQueueNums"), "write", data.get("writeQueueNums"), "perm", data.get("perm")));
        }
        return told;
    }

    private Map<?, ?> one() throws Exception {
        return (Map<?, ?>) ((List<?>) route("TBW102").get("brokerDatas")).get(0);
    }

    /** The address of the master broker. */
    synchronized String broker() throws Exception {
        if (broker == null) {
            broker = (String) ((Map<?, ?>) one().get("brokerAddrs")).values().iterator().next();
        }
        return broker;
    }

    MessageQueue queue(String topic, int id) throws Exception {
        return new MessageQueue(topic, (String) one().get("brokerName"), id);
    }

    /** The first answer of `ask` that is not null; fails after `millis`. */
    static <T> T until(long millis, Callable<T> ask) throws Exception {
        for (long end = System.nanoTime() + millis * 1_000_000;;) {
            T answer = ask.call();
            if (answer != null) {
                return answer;
            }
            if (System.nanoTime() > end) {
                throw new IllegalStateException("nothing after " + millis + " ms");
            }
            Thread.sleep(10);
        }
    }

    // Requests without a client

    synchronized NettyRemotingClient remoting() {
        if (remoting == null) {
            remoting = connection();
        }
        return remoting;
    }

    NettyRemotingClient connection() {
        NettyRemotingClient made = new NettyRemotingClient(new NettyClientConfig());
        made.start();
        closing(made::shutdown);
        return made;
    }

    static RemotingCommand request(int code, Map<String, String> fields, String body) {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        request.setExtFields(new HashMap<>(fields));
        if (body != null) {
            request.setBody(body.getBytes(StandardCharsets.UTF_8));
        }
        return request;
    }

    RemotingCommand invoke(String address, int code, Map<String, String> fields, String body) throws Exception {
        return remoting().invokeSync(address, request(code, fields, body), 5000);
    }

    /** The answer to a request: code, remark and fields. */
    Map<String, Object> told(String address, int code, Map<String, String> fields, String body) throws Exception {
        return told(invoke(address, code, fields, body));
    }

    Map<String, Object> told(RemotingCommand answer) {
        Map<String, Object> told = map("code", answer.getCode(), "remark", text(answer.getRemark()));
        Map<String, Object> fields = new TreeMap<>();
        (answer.getExtFields() == null ? new HashMap<String, String>() : answer.getExtFields()).forEach((name, value) -> {
            boolean varies = Set.of("msgId", "transactionId", "recallHandle").contains(name) || value.matches("1[0-9]{12}");
            fields.put(name, varies ? "..." : text(value));
        });
        told.put("fields", fields);
        return told;
    }

    /** All messages of a topic, queue by queue, read by plain pull requests. */
    List<MessageExt> stored(String topic) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        int queues = ((Number) ((Map<?, ?>) ((List<?>) route(topic).get("queueDatas")).get(0)).get("readQueueNums")).intValue();
        for (int queue = 0; queue < queues; queue++) {
            for (long offset = 0;;) {
                RemotingCommand answer = invoke(broker(), 11, pulling("reader", topic, "queueId", queue, "queueOffset", offset), null);
                if (answer.getCode() != 0) {
                    break;
                }
                found.addAll(MessageDecoder.decodes(ByteBuffer.wrap(answer.getBody())));
                offset = Long.parseLong(answer.getExtFields().get("nextBeginOffset"));
            }
        }
        return found;
    }

    /** Waits until a topic holds so many messages: an answered send may not be in its queue yet. */
    List<MessageExt> stored(String topic, int messages) throws Exception {
        return until(5000, () -> {
            List<MessageExt> found = stored(topic);
            return found.size() >= messages ? found : null;
        });
    }

    /** The offset of a group in each queue, or the code of the error. */
    List<Object> offsets(String group, String topic, int queues) throws Exception {
        List<Object> told = new ArrayList<>();
        for (int queue = 0; queue < queues; queue++) {
            RemotingCommand answer = invoke(broker(), 14,
                Map.of("consumerGroup", group, "topic", topic, "queueId", String.valueOf(queue)), null);
            told.add(answer.getCode() == 0 ? (Object) Long.valueOf(answer.getExtFields().get("offset")) : "code " + answer.getCode());
        }
        return told;
    }

    /** Waits until the offsets of a group have a sum; a commit is oneway. */
    List<Object> offsets(String group, String topic, int queues, long sum) throws Exception {
        for (int i = 0; i < 300; i++) {
            List<Object> told = offsets(group, topic, queues);
            if (told.stream().mapToLong(offset -> offset instanceof Long ? (Long) offset : 0).sum() == sum) {
                return told;
            }
            Thread.sleep(10);
        }
        return offsets(group, topic, queues);
    }

    // What outcomes are made of

    static Map<String, Object> map(Object... pairs) {
        Map<String, Object> made = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            made.put((String) pairs[i], pairs[i + 1]);
        }
        return made;
    }

    /** A remark or text of an error without the prefix of names, addresses and durations; its beginning, if it is long. */
    String text(String text) {
        if (text == null) {
            return null;
        }
        if (text.matches("([a-z]+\\.)*[A-Z]\\w*(Exception|Error)\\b[^.]*(?s:.*)")) {
            return "an exception of the server"; // its text depends on the language
        }
        String found = text.replace(prefix, "").split("\n")[0].replaceAll("[0-9]+(\\.[0-9]+){3}:[0-9]+", "ADDRESS")
            .replaceAll("cost \\[[0-9]+\\] ?ms", "cost [N]ms").replaceAll("BrokersSent: \\[[^]]*\\]", "BrokersSent: [...]")
            .replaceAll("(x{5})x+", "$1...");
        return found.length() > 100 ? found.substring(0, 100) + "..." : found;
    }

    /** An exception of a client: its class, code and text, and its cause. */
    Map<String, Object> error(Throwable e) {
        Map<String, Object> told = map("error", e.getClass().getSimpleName());
        if (e instanceof MQBrokerException) {
            told.put("code", ((MQBrokerException) e).getResponseCode());
            told.put("text", text(((MQBrokerException) e).getErrorMessage()));
        } else if (e instanceof MQClientException) {
            told.put("code", ((MQClientException) e).getResponseCode());
            told.put("text", text(((MQClientException) e).getErrorMessage()));
        } else if (e instanceof RequestTimeoutException) {
            told.put("code", ((RequestTimeoutException) e).getResponseCode());
            told.put("text", text(((RequestTimeoutException) e).getErrorMessage()));
        } else {
            told.put("text", text(String.valueOf(e.getMessage())));
        }
        if (e.getCause() != null) {
            told.put("cause", error(e.getCause()));
        }
        return told;
    }

    /** What `call` returns, as `tell` says it, or its error. */
    Object attempt(Callable<?> call) {
        try {
            Object result = call.call();
            return result instanceof SendResult ? sent((SendResult) result) : result;
        } catch (Exception e) {
            return error(e);
        }
    }

    Map<String, Object> sent(SendResult result) {
        return map("status", result.getSendStatus().name(), "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", result.getQueueOffset(), "ids", ids(result.getMsgId()), "offsetIds", ids(result.getOffsetMsgId()),
            "region", result.getRegionId(), "traceOn", result.isTraceOn(), "transactionId", ids(result.getTransactionId()));
    }

    /** How many ids there are, and whether all have a known form. A unique key is longer on a host with an IPv6 address. */
    private static Object ids(String text) {
        return text == null ? null : text.split(",").length + (text.matches("[0-9A-F,]+") ? "" : " " + text);
    }

    /** Results of sends whose queues the client chose: statuses, and the offsets of each queue, the longest list first. */
    Map<String, Object> sent(Collection<SendResult> results) {
        Map<String, Integer> statuses = new TreeMap<>();
        Map<Integer, List<Long>> queues = new TreeMap<>();
        for (SendResult result : results) {
            statuses.merge(result.getSendStatus().name(), 1, Integer::sum);
            queues.computeIfAbsent(result.getMessageQueue().getQueueId(), id -> new ArrayList<>()).add(result.getQueueOffset());
        }
        List<List<Long>> offsets = new ArrayList<>(queues.values());
        offsets.forEach(list -> list.sort(null));
        offsets.sort(Comparator.comparing((List<Long> list) -> -list.size()));
        return map("statuses", statuses, "offsets", offsets);
    }

    static Object body(byte[] body) {
        if (body == null || body.length <= 100) {
            return body == null ? null : new String(body, StandardCharsets.UTF_8);
        }
        CRC32 crc = new CRC32();
        crc.update(body);
        return map("length", body.length, "crc32", crc.getValue());
    }

    Map<String, Object> properties(Message message) {
        Map<String, Object> told = new TreeMap<>();
        message.getProperties().forEach((name, value) -> told.put(text(name), VARYING.contains(name) ? "..." : text(value)));
        return told;
    }

    /** A received message without its queue. */
    Map<String, Object> plain(MessageExt message) {
        return map("body", body(message.getBody()), "topic", text(message.getTopic()), "tags", message.getTags(), "keys",
            text(message.getKeys()), "flag", message.getFlag(), "sysFlag", message.getSysFlag(), "reconsumeTimes",
            message.getReconsumeTimes(), "properties", properties(message));
    }

    Map<String, Object> whole(MessageExt message) {
        Map<String, Object> told = plain(message);
        told.put("queueId", message.getQueueId());
        told.put("queueOffset", message.getQueueOffset());
        return told;
    }

    /** Messages whose queues were chosen by chance, by their bodies. */
    List<Object> plain(Collection<MessageExt> messages) {
        List<Object> told = new ArrayList<>();
        messages.stream().sorted(Comparator.comparing(message -> text(message))).forEach(message -> told.add(plain(message)));
        return told;
    }

    List<Object> whole(Collection<MessageExt> messages) {
        List<Object> told = new ArrayList<>();
        messages.forEach(message -> told.add(whole(message)));
        return told;
    }

    static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }
}
