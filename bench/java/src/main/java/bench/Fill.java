package bench;

import java.util.Map;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * Writes a store of mib MiB or of count messages and closes it. records: its messages; checksum: the end of the log.
 *
 * <pre>dir= body=128 mib=1024 count= filemib=1024 topics=1 queues=4</pre>
 */
final class Fill implements Round {
    private final Args args;

    Fill(Args args) {
        this.args = args;
    }

    @Override
    public Result run() throws Exception {
        DefaultMessageStore store = Stores.start(args);
        Maker maker = new Maker(args, 0);
        int count = args.number("count", Integer.MAX_VALUE);
        long limit = ((long) args.number("mib", 1024) << 20) - 65536;
        long records = 0;
        long end = 0;
        long start = System.nanoTime();
        while (end < limit && records < count) {
            PutMessageResult result = store.putMessage(maker.make());
            Stores.demand(result);
            AppendMessageResult appended = result.getAppendMessageResult();
            end = appended.getWroteOffset() + appended.getWroteBytes();
            records++;
        }
        Stores.waitDispatched(store);
        store.shutdown();
        return new Result((System.nanoTime() - start) / 1e9, records, end, Map.of());
    }
}
