import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A step of a test, see Steps: a TransactionMQProducer of a group sends one message for each body of `plan`, and ends
 * `millis` after it has got `checks`, at the latest after a minute. The plan gives the states of each body: that of the local transaction, then those of the checks; the
 * last one stays. A state is commit, rollback, unknown, null or throw. Answers with the history of each body: status of
 * the send, state that the send returned, then one entry for each check, with what the check shows.
 */
final class Transactions implements TransactionListener {
    private final Map<String, List<Object>> plan = new ConcurrentHashMap<>();
    private final Map<String, List<Object>> histories = new ConcurrentHashMap<>();

    static Object play(Context context, String topic, Map<?, ?> command) throws Exception {
        Transactions own = new Transactions();
        List<String> bodies = new ArrayList<>();
        for (Object one : (List<?>) command.get("plan")) {
            List<Object> states = new ArrayList<>((List<?>) one);
            String body = (String) states.remove(0);
            own.plan.put(body, states);
            own.histories.put(body, new ArrayList<>());
            bodies.add(body);
        }
        TransactionMQProducer producer = context.ready(new TransactionMQProducer((String) command.get("group")));
        producer.setSendMsgTimeout(8000);
        producer.setTransactionListener(own);
        producer.start();
        try {
            for (String body : bodies) {
                if (own.plan.get(body).isEmpty()) {
                    continue; // only its checks: another producer sends it
                }
                Message message = new Message(topic, "t", "k-" + body, body.getBytes(StandardCharsets.UTF_8));
                message.putUserProperty("own", "x");
                TransactionSendResult result = producer.sendMessageInTransaction(message, body);
                own.note(body, result.getSendStatus().name());
                own.note(body, result.getLocalTransactionState().name());
                own.note(body, result.getMsgId().equals(result.getTransactionId()));
            }
            Number checks = (Number) command.get("checks");
            for (long end = System.nanoTime() + 60_000_000_000L; checks != null && System.nanoTime() < end;) {
                if (own.checked() >= checks.intValue()) {
                    break;
                }
                Thread.sleep(50);
            }
            Thread.sleep(((Number) command.get("millis")).longValue());
        } finally {
            producer.shutdown();
        }
        return new LinkedHashMap<>(own.histories);
    }

    /** How many checks there were. */
    private int checked() {
        int sum = 0;
        for (List<Object> history : histories.values()) {
            synchronized (history) {
                sum += (int) history.stream().filter(one -> one instanceof Map).count();
            }
        }
        return sum;
    }

    private void note(String body, Object value) {
        List<Object> history = histories.computeIfAbsent(body, name -> new ArrayList<>());
        synchronized (history) {
            history.add(value);
        }
    }

    private static LocalTransactionState state(Object name) {
        switch ((String) name) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            case "null":
                return null;
            case "throw":
                throw new IllegalStateException("thrown by the test");
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object body) {
        return state(plan.get((String) body).get(0));
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        List<Object> states = plan.getOrDefault(body, List.of("unknown"));
        List<Object> history = histories.computeIfAbsent(body, name -> new ArrayList<>());
        int number;
        synchronized (history) {
            number = (int) history.stream().filter(one -> one instanceof Map).count() + 1;
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("topic", message.getTopic());
            told.put("keys", message.getKeys());
            told.put("tags", message.getTags());
            told.put("own", message.getUserProperty("own"));
            told.put("times", message.getUserProperty(MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES));
            told.put("transaction", message.getTransactionId().equals(message.getUserProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)));
            history.add(told);
        }
        return state(states.isEmpty() ? "unknown" : states.get(Math.min(number, states.size() - 1)));
    }
}
