import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * RocketMQ's mqadmin for many commands in one process, and clients that it can ask about. Each line of the input is a
 * JSON object, and is answered by one.
 *
 * command                   arguments of mqadmin; answers with {"out": what it printed}
 * clients, group, topic     starts a producer and a consumer at the name server `clients`, sends 10 messages to two
 *                           queues of an existing topic, and waits until they are consumed. Answers with the ids of the
 *                           first one: {"msgId", "offsetMsgId"}, and the client ids
 */
public final class Admin {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setProperty("rocketmq.remoting.version", String.valueOf(MQVersion.CURRENT_VERSION));
        System.setSecurityManager(new StayingAlive());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null;) {
            Map<?, ?> asked = RemotingSerializable.fromJson(line, HashMap.class);
            Map<String, Object> told;
            if (asked.containsKey("command")) {
                told = Map.of("out", run((List<?>) asked.get("command")));
            } else {
                told = clients((String) asked.get("clients"), (String) asked.get("group"), (String) asked.get("topic"));
            }
            out.println(RemotingSerializable.toJson(told, false));
        }
        Runtime.getRuntime().halt(0);
    }

    /** mqadmin ends the process after wrong arguments; here, only the command ends. Needs -Djava.security.manager=allow. */
    private static final class StayingAlive extends SecurityManager {
        @Override
        public void checkExit(int status) {
            throw new SecurityException("mqadmin ended with " + status);
        }

        @Override
        public void checkPermission(java.security.Permission permission) {
        }
    }

    private static String run(List<?> command) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream errors = System.err;
        System.setOut(stream);
        System.setErr(stream);
        try {
            MQAdminStartup.main0(command.stream().map(String::valueOf).toArray(String[]::new), null);
        } catch (Throwable e) {
            e.printStackTrace(stream);
        }
        System.setErr(errors);
        return printed.toString(StandardCharsets.UTF_8);
    }

    private static Map<String, Object> clients(String nameServer, String group, String topic) throws Exception {
        AtomicInteger consumed = new AtomicInteger();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("consumer-" + group);
        consumer.setClientIP("127.0.0.1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("P_" + group);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("producer-" + group);
        producer.setClientIP("127.0.0.1");
        producer.start();
        List<SendResult> sent = new ArrayList<>();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        for (int i = 0; i < 10; i++) {
            Message message = new Message(topic, "red", "key" + i, ("body " + i).getBytes(StandardCharsets.UTF_8));
            sent.add(producer.send(message, queues.get(i % queues.size())));
        }
        for (int i = 0; i < 300 && consumed.get() < 10; i++) {
            Thread.sleep(100);
        }
        Thread.sleep(6000); // the consumer commits every 5 s
        Map<String, Object> told = new HashMap<>();
        told.put("consumed", consumed.get());
        told.put("msgId", sent.get(0).getMsgId());
        told.put("offsetMsgId", sent.get(0).getOffsetMsgId());
        told.put("consumer", consumer.buildMQClientId());
        told.put("producer", producer.buildMQClientId());
        return told;
    }
}
