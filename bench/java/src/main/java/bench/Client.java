package bench;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's client. The same program, with what it has learned, works at each of the brokers alternately.
 *
 * <pre>
 * go NAMESERVER TOPIC sync THREADS COUNT     each thread sends, and waits for the answer
 * go NAMESERVER TOPIC async WINDOW COUNT     one thread, at most WINDOW sends without an answer
 * go NAMESERVER TOPIC batch THREADS COUNT    batches of 32
 * go NAMESERVER TOPIC transact THREADS COUNT  half messages, each committed; the clock ends when all can be consumed
 * go NAMESERVER TOPIC consume GROUPS COUNT   a new consumer group reads COUNT messages; the clock starts with the first
 * go NAMESERVER TOPIC pull THREADS COUNT     one thread pulls COUNT messages, queue after queue
 * </pre>
 *
 * records: messages, those with another outcome than SEND_OK excluded; more: p50_us and p99_us of a call.
 */
final class Client implements Round {
    private static final int BATCH = 32;
    private final byte[] body;
    private String topic;
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, TransactionMQProducer> transactions = new HashMap<>();
    private final AtomicLong number = new AtomicLong();

    Client(Args args) {
        body = new byte[args.number("body", 128)];
        Arrays.fill(body, (byte) 'x');
    }

    @Override
    public Result run() {
        throw new IllegalArgumentException("go needs words");
    }

    @Override
    public Result run(String words) throws Exception {
        String[] word = words.split(" ");
        topic = word[1];
        int many = Integer.parseInt(word[3]);
        int count = Integer.parseInt(word[4]);
        return switch (word[2]) {
            case "sync" -> sync(producer(word[0]), many, count);
            case "batch" -> batches(producer(word[0]), many, count);
            case "transact" -> transact(word[0], many, count);
            case "async" -> async(producer(word[0]), many, count);
            case "consume" -> consume(word[0], count);
            case "pull" -> pull(word[0], count);
            default -> throw new IllegalArgumentException(words);
        };
    }

    private DefaultMQProducer producer(String nameServer) throws Exception {
        DefaultMQProducer known = producers.get(nameServer);
        if (known == null) {
            known = new DefaultMQProducer("bench-producer");
            known.setNamesrvAddr(nameServer);
            known.setInstanceName("producer-" + nameServer.replace(':', '-'));
            known.setVipChannelEnabled(false);
            known.setSendMsgTimeout(10_000);
            known.start();
            producers.put(nameServer, known);
        }
        return known;
    }

    private Message message() {
        Message message = new Message(topic, "TagA", "order-" + number.getAndIncrement(), body);
        message.setWaitStoreMsgOK(true);
        return message;
    }

    /** A call that is measured; returns the number of stored messages. */
    private interface Call {
        int run() throws Exception;
    }

    private static int number(SendResult result, int many) {
        return result.getSendStatus() == SendStatus.SEND_OK ? many : 0;
    }

    private Result sync(DefaultMQProducer producer, int threads, int count) throws Exception {
        return threads(() -> number(producer.send(message()), 1), threads, count / threads, () -> { });
    }

    private Result batches(DefaultMQProducer producer, int threads, int count) throws Exception {
        return threads(() -> number(producer.send(batch()), BATCH), threads, count / threads / BATCH, () -> { });
    }

    /** A commit is not answered, so the round ends when the committed messages are in their queues. */
    private Result transact(String nameServer, int threads, int count) throws Exception {
        TransactionMQProducer producer = transactions.get(nameServer);
        if (producer == null) {
            producer = new TransactionMQProducer("bench-transactions");
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName("transactions-" + nameServer.replace(':', '-'));
            producer.setVipChannelEnabled(false);
            producer.setSendMsgTimeout(10_000);
            producer.setTransactionListener(COMMITS);
            producer.start();
            transactions.put(nameServer, producer);
        }
        TransactionMQProducer own = producer;
        long wanted = consumable(own) + count / threads * threads;
        return threads(() -> number(own.sendMessageInTransaction(message(), null), 1), threads, count / threads, () -> {
            for (long end = System.nanoTime() + 20_000_000_000L; consumable(own) < wanted && System.nanoTime() < end;) {
                Thread.sleep(1);
            }
        });
    }

    private long consumable(DefaultMQProducer producer) throws Exception {
        long sum = 0;
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            sum += producer.maxOffset(queue);
        }
        return sum;
    }

    private static final TransactionListener COMMITS = new TransactionListener() {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    };

    /** Something that is waited for before the clock ends. */
    private interface Last {
        void await() throws Exception;
    }

    private Result threads(Call call, int threads, int calls, Last last) throws Exception {
        AtomicLong stored = new AtomicLong();
        long[][] took = new long[threads][calls];
        CountDownLatch done = new CountDownLatch(threads);
        long start = System.nanoTime();
        for (int t = 0; t < threads; t++) {
            long[] mine = took[t];
            new Thread(() -> {
                for (int i = 0; i < calls; i++) {
                    long begin = System.nanoTime();
                    try {
                        stored.addAndGet(call.run());
                    } catch (Exception e) {
                        e.printStackTrace();
                    }
                    mine[i] = System.nanoTime() - begin;
                }
                done.countDown();
            }).start();
        }
        done.await();
        last.await();
        long end = System.nanoTime();
        long[] all = Arrays.stream(took).flatMapToLong(Arrays::stream).sorted().toArray();
        return new Result((end - start) / 1e9, stored.get(), 0,
            Map.of("p50_us", all[all.length / 2] / 1e3, "p99_us", all[all.length * 99 / 100] / 1e3));
    }

    private List<Message> batch() {
        List<Message> batch = new ArrayList<>(BATCH);
        for (int i = 0; i < BATCH; i++) {
            batch.add(message());
        }
        return batch;
    }

    private Result async(DefaultMQProducer producer, int window, int count) throws Exception {
        Semaphore room = new Semaphore(window);
        AtomicInteger stored = new AtomicInteger();
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
            room.acquire();
            producer.send(message(), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        stored.incrementAndGet();
                    }
                    room.release();
                }

                @Override
                public void onException(Throwable e) {
                    room.release();
                }
            });
        }
        room.acquire(window);
        return new Result((System.nanoTime() - start) / 1e9, stored.get(), 0);
    }

    private Result consume(String nameServer, int count) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-" + System.nanoTime());
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("consumer-" + System.nanoTime());
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        AtomicLong seen = new AtomicLong();
        AtomicLong first = new AtomicLong();
        CountDownLatch all = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long before = seen.getAndAdd(messages.size());
            if (before == 0) {
                first.set(System.nanoTime());
            }
            if (before + messages.size() >= count) {
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!all.await(120, TimeUnit.SECONDS)) {
            throw new IllegalStateException("only " + seen.get() + " of " + count + " messages came");
        }
        long end = System.nanoTime();
        consumer.shutdown();
        return new Result((end - first.get()) / 1e9, seen.get(), 0);
    }

    @SuppressWarnings("deprecation") // the client that replaces it has threads of its own
    private Result pull(String nameServer, int count) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("bench-" + System.nanoTime());
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("puller-" + System.nanoTime());
        consumer.setVipChannelEnabled(false);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(topic));
        long start = System.nanoTime();
        long seen = 0;
        for (MessageQueue queue : queues) {
            long offset = 0;
            PullResult found;
            do {
                found = consumer.pull(queue, "*", offset, BATCH);
                offset = found.getNextBeginOffset();
                seen += found.getPullStatus() == PullStatus.FOUND ? found.getMsgFoundList().size() : 0;
            } while (found.getPullStatus() == PullStatus.FOUND && seen < count);
        }
        long end = System.nanoTime();
        consumer.shutdown();
        return new Result((end - start) / 1e9, seen, 0);
    }

    @Override
    public void close() {
        producers.values().forEach(DefaultMQProducer::shutdown);
    }
}
