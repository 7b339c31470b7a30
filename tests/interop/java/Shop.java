import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer of transactions that is shown on a terminal: Shop NAMESERVER TOPIC. It sends three messages: the first is
 * committed, the second rolled back, and the third decided by the check of the broker. It prints each step.
 */
public final class Shop implements TransactionListener {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final CountDownLatch checked = new CountDownLatch(1);

    private Shop() {}

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // logs
        System.setProperty("rocketmq.remoting.version", String.valueOf(MQVersion.CURRENT_VERSION));
        Shop shop = new Shop();
        TransactionMQProducer producer = new TransactionMQProducer("shop");
        producer.setNamesrvAddr(args[0]);
        producer.setTransactionListener(shop);
        producer.start();
        LocalTransactionState[] states = {
            LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.UNKNOW
        };
        String[] bodies = {"one bicycle", "two bells", "three lamps"};
        for (int i = 0; i < bodies.length; i++) {
            Message message = new Message(args[1], null, "o-" + (i + 1), bodies[i].getBytes(StandardCharsets.UTF_8));
            TransactionSendResult result = producer.sendMessageInTransaction(message, states[i]);
            OUT.printf("%s  sent: %s, %s%n", message.getKeys(), result.getSendStatus(), result.getLocalTransactionState());
            Thread.sleep(500); // each decision has its own mark in the store
        }
        boolean wasAsked = shop.checked.await(60, TimeUnit.SECONDS);
        Thread.sleep(3000); // another check would be shown
        producer.shutdown();
        System.exit(wasAsked ? 0 : 1);
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object state) {
        OUT.printf("%s  half message stored; local transaction: %s%n", message.getKeys(), state);
        return (LocalTransactionState) state;
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        String times = message.getUserProperty("TRANSACTION_CHECK_TIMES");
        OUT.printf("%s  check %s of the broker; answer: COMMIT_MESSAGE%n", message.getKeys(), times);
        checked.countDown();
        return LocalTransactionState.COMMIT_MESSAGE;
    }
}
