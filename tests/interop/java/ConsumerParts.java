import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Parts of RocketMQ's consumer that need no cluster. Commands are lines of JSON on stdin, answers lines of JSON on stdout.
 *
 * allocate strategy, client, queues, clients, rooms   the queues that a strategy gives to a client, or {"error": text}.
 *          queues are [topic, broker name, queue id]; null is no list. rooms are the rooms of MACHINE_ROOM.
 *          MACHINE_ROOM_NEARBY-NAME is NAME in rooms; a room is what stands before the first dot in the name of a broker
 *          and in the id of a client, and null where there is no dot.
 * subscribe topic, expression, type                   the SubscriptionData of FilterAPI as JSON, or {"error": text}
 * heartbeat clientId, producers, consumers            the HeartbeatData as JSON. producers are names; each consumer has
 *          group, type, model, from and subscriptions as in subscribe, with version
 * offsets  clientId, group, steps                     a LocalFileOffsetStore of a client; its folder is the property
 *          rocketmq.client.localOffsetStoreDir. Answers with a value for each step; a step is a list:
 *          load | read, queue, kind | update, queue, offset, increaseOnly | persist, queue | persistAll, queues |
 *          remove, queue
 * broadcast nameServer, topic, group, count           a broadcasting consumer from the first offset, until `count` messages;
 *          answers with its clientId and the bodies in the order of their arrival
 * fail nameServer, topic, group, orderly, most, count a consumer from the first offset with maxReconsumeTimes, whose listener
 *          always fails; answers with the reconsume times of `count` calls, and ends 2 s after them
 */
public final class ConsumerParts {
    private static final String[] PACKAGES = {"org.apache.rocketmq.remoting.protocol.heartbeat.", "org.apache.rocketmq.common.protocol.heartbeat."};

    private ConsumerParts() {}

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // logs
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null;) {
            Object answer;
            try {
                answer = answer(RemotingSerializable.fromJson(line, HashMap.class));
            } catch (Exception e) {
                answer = Map.of("error", e.getClass().getSimpleName() + ": " + e.getMessage());
            }
            out.println(answer instanceof String ? answer : RemotingSerializable.toJson(answer, false));
        }
        Runtime.getRuntime().halt(0);
    }

    private static Object answer(Map<?, ?> command) throws Exception {
        switch ((String) command.get("do")) {
            case "allocate":
                return allocate(command);
            case "subscribe":
                return RemotingSerializable.toJson(subscription(command), false);
            case "heartbeat":
                return RemotingSerializable.toJson(heartbeat(command), false);
            case "offsets":
                return offsets(command);
            case "fail":
                return fail(command);
            case "broadcast":
                return broadcast(command);
            default:
                throw new IllegalArgumentException("no such command: " + command);
        }
    }

    private static Object fail(Map<?, ?> command) throws Exception {
        LinkedBlockingQueue<Integer> queue = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer((String) command.get("group"));
        consumer.setNamesrvAddr((String) command.get("nameServer"));
        consumer.setVipChannelEnabled(false);
        consumer.setInstanceName("fail" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(((Number) command.get("most")).intValue());
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.subscribe((String) command.get("topic"), "*");
        if ((Boolean) command.get("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, where) -> {
                queue.add(messages.get(0).getReconsumeTimes());
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, where) -> {
                queue.add(messages.get(0).getReconsumeTimes());
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        List<Integer> times = new ArrayList<>();
        for (int count = ((Number) command.get("count")).intValue(); times.size() < count;) {
            Integer one = queue.poll(20, TimeUnit.SECONDS);
            if (one == null) {
                break;
            }
            times.add(one);
        }
        Thread.sleep(2000);
        consumer.shutdown();
        queue.drainTo(times);
        return times;
    }

    private static Object broadcast(Map<?, ?> command) throws Exception {
        LinkedBlockingQueue<String> queue = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer((String) command.get("group"));
        consumer.setNamesrvAddr((String) command.get("nameServer"));
        consumer.setVipChannelEnabled(false);
        consumer.setClientIP("127.0.0.1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        ClientRelease.broadcast(consumer);
        consumer.subscribe((String) command.get("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, where) -> {
            messages.forEach(message -> queue.add(new String(message.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        List<String> bodies = new ArrayList<>();
        for (int count = ((Number) command.get("count")).intValue(); bodies.size() < count;) {
            String body = queue.poll(10, TimeUnit.SECONDS);
            if (body == null) {
                break;
            }
            bodies.add(body);
        }
        Thread.sleep(500);
        consumer.shutdown(); // writes the offsets
        queue.drainTo(bodies);
        return Map.of("clientId", consumer.buildMQClientId(), "bodies", bodies);
    }

    private static Object allocate(Map<?, ?> command) {
        AllocateMessageQueueStrategy strategy = strategy((String) command.get("strategy"), command);
        List<MessageQueue> given = strategy.allocate("group", (String) command.get("client"), queues((List<?>) command.get("queues")),
            texts((List<?>) command.get("clients")));
        List<Object> told = new ArrayList<>();
        for (MessageQueue queue : given) {
            told.add(List.of(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()));
        }
        return Map.of("name", strategy.getName(), "queues", told);
    }

    private static AllocateMessageQueueStrategy strategy(String name, Map<?, ?> command) {
        String nearby = "MACHINE_ROOM_NEARBY-";
        if (name.startsWith(nearby)) {
            return new AllocateMachineRoomNearby(strategy(name.substring(nearby.length()), command), new Rooms());
        }
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONFIG":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues((List<?>) command.get("config")));
                return config;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
                room.setConsumeridcs(new HashSet<>(texts((List<?>) command.get("rooms"))));
                return room;
            case "CONSISTENT_HASH":
                Number nodes = (Number) command.get("nodes");
                return nodes == null ? new AllocateMessageQueueConsistentHash() : new AllocateMessageQueueConsistentHash(nodes.intValue());
            default:
                throw new IllegalArgumentException("no such strategy: " + name);
        }
    }

    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return room(queue.getBrokerName());
        }

        @Override
        public String consumerDeployIn(String client) {
            return room(client);
        }

        private static String room(String name) {
            int dot = name.indexOf('.');
            return dot < 0 ? null : name.substring(0, dot);
        }
    }

    // The classes of heartbeats are in another package in 4.x.

    private static Class<?> type(String name) throws Exception {
        try {
            return Class.forName(PACKAGES[0] + name);
        } catch (ClassNotFoundException e) {
            return Class.forName(PACKAGES[1] + name);
        }
    }

    private static Object subscription(Map<?, ?> from) throws Exception {
        Class<?> api;
        try {
            api = Class.forName("org.apache.rocketmq.remoting.protocol.filter.FilterAPI");
        } catch (ClassNotFoundException e) {
            api = Class.forName("org.apache.rocketmq.common.filter.FilterAPI");
        }
        try {
            Object made = api.getMethod("build", String.class, String.class, String.class)
                .invoke(null, from.get("topic"), from.get("expression"), from.get("type"));
            Number version = (Number) from.get("version");
            set(made, "setSubVersion", long.class, version == null ? 0L : version.longValue());
            return made;
        } catch (InvocationTargetException e) {
            throw (Exception) e.getCause();
        }
    }

    private static Object heartbeat(Map<?, ?> from) throws Exception {
        Object beat = type("HeartbeatData").getConstructor().newInstance();
        set(beat, "setClientID", String.class, from.get("clientId"));
        Set<Object> producers = new LinkedHashSet<>();
        for (Object name : (List<?>) from.get("producers")) {
            Object producer = type("ProducerData").getConstructor().newInstance();
            set(producer, "setGroupName", String.class, name);
            producers.add(producer);
        }
        set(beat, "setProducerDataSet", Set.class, producers);
        Set<Object> consumers = new LinkedHashSet<>();
        for (Object one : (List<?>) from.get("consumers")) {
            Map<?, ?> values = (Map<?, ?>) one;
            Object consumer = type("ConsumerData").getConstructor().newInstance();
            set(consumer, "setGroupName", String.class, values.get("group"));
            set(consumer, "setConsumeType", type("ConsumeType"), constant(type("ConsumeType"), values.get("type")));
            set(consumer, "setMessageModel", type("MessageModel"), constant(type("MessageModel"), values.get("model")));
            set(consumer, "setConsumeFromWhere", ConsumeFromWhere.class, constant(ConsumeFromWhere.class, values.get("from")));
            Set<Object> subscriptions = new LinkedHashSet<>();
            for (Object subscription : (List<?>) values.get("subscriptions")) {
                subscriptions.add(subscription((Map<?, ?>) subscription));
            }
            set(consumer, "setSubscriptionDataSet", Set.class, subscriptions);
            consumers.add(consumer);
        }
        set(beat, "setConsumerDataSet", Set.class, consumers);
        return beat;
    }

    private static void set(Object of, String method, Class<?> type, Object value) throws Exception {
        of.getClass().getMethod(method, type).invoke(of, value);
    }

    private static Object constant(Class<?> type, Object name) {
        for (Object one : type.getEnumConstants()) {
            if (((Enum<?>) one).name().equals(name)) {
                return one;
            }
        }
        throw new IllegalArgumentException("no such name: " + name);
    }

    private static Object offsets(Map<?, ?> command) throws Exception {
        MQClientInstance instance = new MQClientInstance(new ClientConfig(), 0, (String) command.get("clientId"));
        LocalFileOffsetStore store = new LocalFileOffsetStore(instance, (String) command.get("group"));
        List<Object> told = new ArrayList<>();
        for (Object one : (List<?>) command.get("steps")) {
            try {
                told.add(step(store, (List<?>) one));
            } catch (Exception e) {
                told.add(e.getClass().getSimpleName());
            }
        }
        return told;
    }

    private static Object step(LocalFileOffsetStore store, List<?> step) throws Exception {
        List<MessageQueue> queues = step.size() == 1 ? null : queues(step.get(0).equals("persistAll") ? (List<?>) step.get(1) : List.of(step.get(1)));
        switch ((String) step.get(0)) {
            case "load":
                store.load();
                return "done";
            case "read":
                return store.readOffset(queues.get(0), ReadOffsetType.valueOf((String) step.get(2)));
            case "update":
                store.updateOffset(queues.get(0), ((Number) step.get(2)).longValue(), (Boolean) step.get(3));
                return "done";
            case "persist":
                store.persist(queues.get(0));
                return "done";
            case "persistAll":
                store.persistAll(new HashSet<>(queues));
                return "done";
            case "remove":
                store.removeOffset(queues.get(0));
                return "done";
            default:
                throw new IllegalArgumentException("no such step: " + step);
        }
    }

    private static List<MessageQueue> queues(List<?> from) {
        if (from == null) {
            return null;
        }
        List<MessageQueue> queues = new ArrayList<>();
        for (Object one : from) {
            List<?> parts = (List<?>) one;
            queues.add(new MessageQueue((String) parts.get(0), (String) parts.get(1), ((Number) parts.get(2)).intValue()));
        }
        return queues;
    }

    private static List<String> texts(List<?> from) {
        if (from == null) {
            return null;
        }
        List<String> texts = new ArrayList<>();
        from.forEach(one -> texts.add((String) one));
        return texts;
    }
}
