import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Consumer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * RocketMQ's DefaultMessageStore, controlled by lines of JSON on stdin. Each line is answered by one line of JSON on
 * stdout, {"error": text} if it failed. At the end of input the process ends at once: a store that is still open is
 * then one whose process died. Two packages are imported whole because a class moved between them from 4.x to 5.x.
 *
 * open  root, settings        load and start a store, wait until every record is dispatched; batchTopics, separated by
 *                             commas, are the topics with batch queues
 * put   root, messages        each a message or {"batch": [messages]}; answers with the store's answer to each
 * pour  root, messages        as put, but writes each answer as a line at once; then null
 * read  root                  bounds of the log and the queues, every message as getMessage returns it, queue by queue
 * look  root, offsets         the record at each physical offset, null where the store finds no record
 * query root, topic, key      physical offsets of the newest messages that the index has for a key, in log order
 * ask   root, questions       each with its kind, a method's name: getMessage, getOffsetInQueueByTime, queryMessage
 * retain root, topics         delete the queues of all other topics; answers with the number of deleted topics
 * close roots                 shut down, all at once
 * encode, decode, invoke      see Frames
 */
public final class Peer {
    private final Map<String, DefaultMessageStore> stores = new TreeMap<>();
    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        Peer peer = new Peer();
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null;) {
            Object answer;
            try {
                answer = peer.answer(map(RemotingSerializable.fromJson(line, HashMap.class)));
            } catch (Throwable e) {
                e.printStackTrace();
                answer = Map.of("error", e.toString());
            }
            peer.out.println(RemotingSerializable.toJson(answer, false));
        }
        Runtime.getRuntime().halt(0);
    }

    private Object answer(Map<String, Object> command) throws Exception {
        String root = (String) command.get("root");
        switch ((String) command.get("do")) {
            case "open":
                return open(root, map(command.get("settings")));
            case "put":
                List<Object> answers = new ArrayList<>();
                put(stores.get(root), list(command.get("messages")), answers::add);
                return answers;
            case "pour":
                put(stores.get(root), list(command.get("messages")), answer -> out.println(RemotingSerializable.toJson(answer, false)));
                return null;
            case "read":
                return read(stores.get(root));
            case "look":
                return look(stores.get(root), list(command.get("offsets")));
            case "query":
                return query(stores.get(root), (String) command.get("topic"), (String) command.get("key"));
            case "ask":
                List<Object> told = new ArrayList<>();
                for (Object question : list(command.get("questions"))) {
                    told.add(ask(stores.get(root), map(question)));
                }
                return told;
            case "retain":
                TreeSet<String> topics = new TreeSet<>();
                list(command.get("topics")).forEach(topic -> topics.add((String) topic));
                return stores.get(root).cleanUnusedTopic(topics);
            case "close":
                return close(list(command.get("roots")));
            case "encode":
                return Frames.encode(command);
            case "decode":
                return Frames.decode(command);
            case "invoke":
                return Frames.invoke(command);
            default:
                throw new IllegalArgumentException("no such command: " + command);
        }
    }

    private Object open(String root, Map<String, Object> settings) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog"); // 4.x does not derive it from the root
        config.setHaListenPort(0);
        Properties properties = new Properties();
        settings.forEach((name, value) -> properties.setProperty(name, value.toString()));
        MixAll.properties2Object(properties, config);
        DefaultMessageStore store = Release.store(config, (String) settings.getOrDefault("batchTopics", ""));
        if (!store.load()) {
            store.shutdown();
            throw new IllegalStateException("load() said no");
        }
        store.start();
        stores.put(root, store);
        settle(store);
        return Map.of("min", store.getMinPhyOffset(), "max", store.getMaxPhyOffset());
    }

    /** Waits until every record is dispatched to its queue and to the index. */
    private static void settle(DefaultMessageStore store) throws Exception {
        for (long end = System.nanoTime() + 30_000_000_000L; store.dispatchBehindBytes() > 0;) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("not dispatched: " + store.dispatchBehindBytes() + " bytes");
            }
            Thread.sleep(5);
        }
    }

    private Object close(List<Object> roots) throws Exception {
        List<Thread> closing = new ArrayList<>();
        for (Object root : roots) {
            settle(stores.get(root));
            closing.add(new Thread(stores.remove(root)::shutdown));
        }
        closing.forEach(Thread::start);
        while (closing.removeIf(thread -> !thread.isAlive()) || !closing.isEmpty()) {
            closing.forEach(Peer::wake);
            Thread.sleep(5);
        }
        return Map.of();
    }

    /** Ends the seconds that shutdown() grants to requests and timers: there are none here. */
    private static void wake(Thread closing) {
        boolean waits = false;
        for (StackTraceElement frame : closing.getStackTrace()) {
            waits |= frame.getMethodName().equals("sleep") || frame.getMethodName().equals("awaitTermination");
            if (frame.getClassName().startsWith("org.apache.rocketmq")) {
                if (waits && frame.getClassName().matches(".*\\.(DefaultMessageStore|ScheduleMessageService)")) {
                    closing.interrupt();
                }
                return;
            }
        }
    }

    private static void put(DefaultMessageStore store, List<Object> messages, Consumer<Object> answers) throws Exception {
        for (Object message : messages) {
            List<Object> batch = list(map(message).get("batch"));
            PutMessageResult result = batch == null
                ? store.putMessage(single(map(message)))
                : store.putMessages(batch(batch));
            AppendMessageResult appended = result.getAppendMessageResult();
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("status", result.getPutMessageStatus().toString());
            told.put("ok", result.isOk());
            if (appended != null) {
                told.put("phyOffset", appended.getWroteOffset());
                told.put("queueOffset", appended.getLogicsOffset());
                told.put("size", appended.getWroteBytes());
                told.put("count", appended.getMsgNum());
                told.put("msgId", appended.getMsgId());
                told.put("storeTimestamp", appended.getStoreTimestamp());
            }
            answers.accept(told);
        }
    }

    /** A message as a broker passes it to the store. */
    private static MessageExtBrokerInner single(Map<String, Object> from) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        address(message, from);
        message.setBody(body(from));
        message.setFlag(number(from, "flag").intValue());
        message.setSysFlag(number(from, "sysFlag").intValue());
        message.setPreparedTransactionOffset(number(from, "preparedTransactionOffset").longValue());
        properties(message, from);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    /** A client batch; the first message's values are used for the fields that the messages share. */
    private static MessageExtBatch batch(List<Object> entries) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (Object entry : entries) {
            Message message = new Message((String) map(entry).get("topic"), body(map(entry)));
            message.setFlag(number(map(entry), "flag").intValue());
            properties(message, map(entry));
            messages.add(message);
        }
        MessageExtBatch batch = new MessageExtBatch();
        address(batch, map(entries.get(0)));
        batch.setBody(MessageDecoder.encodeMessages(messages));
        return batch;
    }

    private static void address(MessageExt message, Map<String, Object> from) throws Exception {
        message.setTopic((String) from.get("topic"));
        message.setQueueId(number(from, "queueId").intValue());
        message.setBornTimestamp(number(from, "bornTimestamp").longValue());
        message.setBornHost(host(from, "bornHost"));
        message.setStoreHost(host(from, "storeHost"));
        message.setReconsumeTimes(number(from, "reconsumeTimes").intValue());
        MessageAccessor.setProperties(message, new HashMap<>()); // 5.x reads the properties first
    }

    private static void properties(Message message, Map<String, Object> from) {
        MessageAccessor.setProperties(message, new HashMap<>()); // a new Message has WAIT
        map(from.get("properties")).forEach((name, value) -> MessageAccessor.putProperty(message, name, (String) value));
    }

    private static Object read(DefaultMessageStore store) throws Exception {
        settle(store);
        List<Object> queues = new ArrayList<>();
        List<Object> messages = new ArrayList<>();
        for (String topic : new TreeSet<>(store.getConsumeQueueTable().keySet())) {
            for (int queue : new TreeSet<>(store.getConsumeQueueTable().get(topic).keySet())) {
                long min = store.getMinOffsetInQueue(topic, queue);
                long max = store.getMaxOffsetInQueue(topic, queue);
                queues.add(List.of(topic, queue, min, max));
                for (long at = min; at < max;) {
                    GetMessageResult got = store.getMessage("interop", topic, queue, at, 32, null);
                    if (got.getStatus() != GetMessageStatus.FOUND) {
                        throw new IllegalStateException(topic + "-" + queue + " at " + at + ": " + got.getStatus());
                    }
                    for (ByteBuffer record : got.getMessageBufferList()) {
                        messages.add(tell(store, record));
                    }
                    at = got.getNextBeginOffset();
                    got.release();
                }
            }
        }
        return Map.of("min", store.getMinPhyOffset(), "max", store.getMaxPhyOffset(), "queues", queues, "messages", messages);
    }

    private static Object look(DefaultMessageStore store, List<Object> offsets) {
        List<Object> told = new ArrayList<>();
        for (Object offset : offsets) {
            SelectMappedBufferResult found = store.selectOneMessageByOffset(((Number) offset).longValue());
            told.add(found == null ? null : tell(store, found.getByteBuffer()));
            if (found != null) {
                found.release();
            }
        }
        return told;
    }

    private static Object query(DefaultMessageStore store, String topic, String key) {
        QueryMessageResult found = store.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
        List<Long> offsets = offsets(found.getMessageBufferList());
        found.release();
        return offsets;
    }

    /** The answer to one question, with the field names of the golden stores' answers. */
    private static Object ask(DefaultMessageStore store, Map<String, Object> question) throws Exception {
        String topic = (String) question.get("topic");
        int queue = question.containsKey("queueId") ? number(question, "queueId").intValue() : 0;
        Map<String, Object> told = new LinkedHashMap<>();
        switch ((String) question.get("kind")) {
            case "getMessage":
                List<Object> tags = list(question.get("tags"));
                GetMessageResult got = store.getMessage("interop", topic, queue, number(question, "offset").longValue(),
                    number(question, "maxMsgNums").intValue(), tags == null ? null : Release.filter(topic, tags));
                told.put("status", got.getStatus().toString());
                told.put("nextBeginOffset", got.getNextBeginOffset());
                told.put("minOffset", got.getMinOffset());
                told.put("maxOffset", got.getMaxOffset());
                told.put("phyOffsets", offsets(got.getMessageBufferList()));
                told.put("bufferTotalSize", got.getBufferTotalSize());
                got.release();
                return told;
            case "getOffsetInQueueByTime":
                return Release.offsetsByTime(store, topic, queue, number(question, "timestamp").longValue());
            case "queryMessage":
                QueryMessageResult found = store.queryMessage(topic, (String) question.get("key"),
                    number(question, "maxNum").intValue(), number(question, "begin").longValue(), number(question, "end").longValue());
                told.put("phyOffsets", offsets(found.getMessageBufferList()));
                told.put("indexLastUpdateTimestamp", found.getIndexLastUpdateTimestamp());
                told.put("indexLastUpdatePhyoffset", found.getIndexLastUpdatePhyoffset());
                found.release();
                return told;
            default:
                throw new IllegalArgumentException("no such question: " + question);
        }
    }

    private static List<Long> offsets(List<ByteBuffer> records) {
        List<Long> offsets = new ArrayList<>();
        for (ByteBuffer record : records) {
            offsets.add(record.getLong(28));
        }
        return offsets;
    }

    /** The record as the client's decoder reads it, and whether the store's own check, checksums included, agrees. */
    private static Map<String, Object> tell(DefaultMessageStore store, ByteBuffer record) {
        DispatchRequest check = Release.check(store, record.duplicate());
        MessageExt message = MessageDecoder.decode(record.duplicate(), true, false);
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("valid", check.isSuccess() && check.getMsgSize() == message.getStoreSize());
        told.put("storeSize", message.getStoreSize());
        told.put("topic", message.getTopic());
        told.put("queueId", message.getQueueId());
        told.put("queueOffset", message.getQueueOffset());
        told.put("physicalOffset", message.getCommitLogOffset());
        told.put("storeTimestamp", message.getStoreTimestamp());
        told.put("bornTimestamp", message.getBornTimestamp());
        told.put("properties", message.getProperties() == null ? new HashMap<>() : message.getProperties());
        told.put("msgId", message.getMsgId());
        told.put("flag", message.getFlag());
        told.put("sysFlag", message.getSysFlag());
        told.put("reconsumeTimes", message.getReconsumeTimes());
        told.put("bodyCRC", message.getBodyCRC());
        told.put("bornHost", host(message.getBornHost()));
        told.put("storeHost", host(message.getStoreHost()));
        told.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        told.put("body", Base64.getEncoder().encodeToString(body));
        return told;
    }

    /** "ip:port"; an IPv6 address has all its groups and is in brackets. */
    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        String ip = host.getAddress().getHostAddress();
        return (ip.contains(":") ? "[" + ip + "]" : ip) + ":" + host.getPort();
    }

    private static InetSocketAddress host(Map<String, Object> from, String name) throws Exception {
        String text = (String) from.get(name);
        int colon = text.lastIndexOf(':');
        return new InetSocketAddress(InetAddress.getByName(text.substring(0, colon)), Integer.parseInt(text.substring(colon + 1)));
    }

    private static byte[] body(Map<String, Object> from) {
        return Base64.getDecoder().decode((String) from.get("body"));
    }

    private static Number number(Map<String, Object> from, String name) {
        return (Number) from.get(name);
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> map(Object value) {
        return (Map<String, Object>) value;
    }

    @SuppressWarnings("unchecked")
    private static List<Object> list(Object value) {
        return (List<Object>) value;
    }
}
