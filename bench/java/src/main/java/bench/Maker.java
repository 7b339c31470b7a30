package bench;

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.message.*;            // MessageExtBrokerInner: here in 5.x,
import org.apache.rocketmq.store.*;                     // there in 4.x

/** Makes each message anew, as a broker does for a request: properties KEYS and TAGS, as a map and as a string. */
final class Maker {
    private static final InetSocketAddress BORN = new InetSocketAddress("127.0.0.1", 45678);
    private static final InetSocketAddress STORE = new InetSocketAddress("127.0.0.1", 10911);
    private final byte[] body;
    private final String[] topics;
    private final int queues;                   // of each topic
    private byte[] encoded;                     // of a batch: the client encodes it, the broker gets these bytes
    private long next;

    Maker(Args args, long first) {
        this.topics = Stores.topics(args);
        this.queues = args.number("queues", 4);
        this.next = first;
        int size = args.number("body", 128);
        body = new byte[size];
        for (int i = 0; i < size; i++) {
            body[i] = (byte) ('a' + i % 23);
        }
    }

    MessageExtBrokerInner make() {
        long n = next++;
        Map<String, String> properties = new HashMap<>();
        properties.put("KEYS", "order-" + n);
        properties.put("TAGS", "TagA");
        MessageExtBrokerInner m = new MessageExtBrokerInner();
        int at = (int) (n % ((long) topics.length * queues));
        m.setTopic(topics[at / queues]);
        m.setQueueId(at % queues);
        m.setBody(body);
        MessageAccessor.setProperties(m, properties);
        m.setPropertiesString(MessageDecoder.messageProperties2String(properties));
        m.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, "TagA"));
        m.setBornTimestamp(System.currentTimeMillis());
        m.setBornHost(BORN);
        m.setStoreHost(STORE);
        return m;
    }

    /** size messages with a tag, but no key, all for one queue. */
    MessageExtBatch batch(int size) {
        if (encoded == null) {
            List<Message> messages = new ArrayList<>();
            for (int i = 0; i < size; i++) {
                messages.add(new Message(Stores.TOPIC, "TagA", body));
            }
            encoded = MessageDecoder.encodeMessages(messages);
        }
        MessageExtBatch m = new MessageExtBatch();
        m.setTopic(topics[0]);
        m.setQueueId((int) (next++ % queues));
        m.setBody(encoded);
        m.setBornTimestamp(System.currentTimeMillis());
        m.setBornHost(BORN);
        m.setStoreHost(STORE);
        return m;
    }
}
