package bench;

import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.message.*;            // MessageExtBrokerInner: here in 5.x,
import org.apache.rocketmq.store.*;                     // there in 4.x

/** Makes each message anew, as a broker does for a request: properties KEYS and TAGS, as a map and as a string. */
final class Maker {
    private static final InetSocketAddress BORN = new InetSocketAddress("127.0.0.1", 45678);
    private static final InetSocketAddress STORE = new InetSocketAddress("127.0.0.1", 10911);
    private final byte[] body;
    private final int queues;
    private long next;

    Maker(int size, int queues, long first) {
        this.queues = queues;
        this.next = first;
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
        m.setTopic(Stores.TOPIC);
        m.setQueueId((int) (n % queues));
        m.setBody(body);
        MessageAccessor.setProperties(m, properties);
        m.setPropertiesString(MessageDecoder.messageProperties2String(properties));
        m.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, "TagA"));
        m.setBornTimestamp(System.currentTimeMillis());
        m.setBornHost(BORN);
        m.setStoreHost(STORE);
        return m;
    }
}
