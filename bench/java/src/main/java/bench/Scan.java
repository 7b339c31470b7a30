package bench;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.message.MessageExt;

/** MessageDecoder over commit log files that are mapped and in the page cache. */
final class Scan implements Round {
    private static final int BLANK = 0xCBD43194;
    private final String mode;
    private final List<MappedByteBuffer> maps = new ArrayList<>();

    Scan(String mode, String[] files) throws IOException {
        this.mode = mode;
        for (String file : files) {
            try (FileChannel f = FileChannel.open(Path.of(file), StandardOpenOption.READ)) {
                MappedByteBuffer map = f.map(FileChannel.MapMode.READ_ONLY, 0, f.size());
                maps.add(map.load());
            }
        }
    }

    @Override
    public Result run() throws Exception {
        try {
            return switch (mode) {
                case "skip" -> skip();
                case "body" -> decode(false);
                case "crc" -> decode(true);
                case "digest" -> digest();
                default -> throw new IllegalArgumentException(mode);
            };
        } catch (Exception | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    /** True if a message begins at the position of b, false at the blank record, zero bytes or the end. */
    private static boolean more(ByteBuffer b) {
        return b.remaining() > 8 && b.getInt(b.position()) > 0 && b.getInt(b.position() + 4) != BLANK;
    }

    /** Sizes only; checksum = sum of the sizes. */
    private Result skip() {
        long records = 0;
        long sum = 0;
        long start = System.nanoTime();
        for (MappedByteBuffer map : maps) {
            ByteBuffer b = map.duplicate();
            while (more(b)) {
                int size = b.getInt(b.position());
                b.position(b.position() + size);
                sum += size;
                records++;
            }
        }
        return new Result((System.nanoTime() - start) / 1e9, records, sum);
    }

    /** Whole messages; the checksum is Sum of bench/common.py. */
    private Result decode(boolean crc) throws Throwable {
        long records = 0;
        long sum = 0;
        long start = System.nanoTime();
        for (MappedByteBuffer map : maps) {
            ByteBuffer b = map.duplicate();
            while (more(b)) {
                MessageExt m = Decoder.decode(b, crc);
                sum += m.getQueueId() + m.getQueueOffset() + m.getCommitLogOffset() + m.getBornTimestamp()
                    + m.getStoreTimestamp() + m.getTopic().length() + m.getBody().length;
                records++;
            }
        }
        return new Result((System.nanoTime() - start) / 1e9, records, sum);
    }

    /** Every field and every body; the checksum is digest() of bench/common.py. Not for timing. */
    private Result digest() throws Throwable {
        long records = 0;
        CRC32 all = new CRC32();
        long start = System.nanoTime();
        for (MappedByteBuffer map : maps) {
            ByteBuffer b = map.duplicate();
            while (more(b)) {
                MessageExt m = Decoder.decode(b, true);
                StringBuilder s = new StringBuilder(m.getTopic());
                long[] numbers = {m.getQueueId(), m.getQueueOffset(), m.getCommitLogOffset(), m.getBornTimestamp(),
                    m.getStoreTimestamp(), m.getFlag(), m.getSysFlag(), m.getReconsumeTimes(),
                    m.getPreparedTransactionOffset(), m.getBodyCRC(), m.getStoreSize()};
                for (long n : numbers) {
                    s.append('\t').append(n);
                }
                s.append('\t').append(host(m.getBornHost())).append('\t').append(host(m.getStoreHost()));
                s.append('\t').append(m.getMsgId()).append('\n');
                for (Map.Entry<String, String> p : new TreeMap<>(m.getProperties()).entrySet()) {
                    s.append(p.getKey()).append('\1').append(p.getValue()).append('\2');
                }
                all.update(s.toString().getBytes(StandardCharsets.UTF_8));
                all.update(m.getBody());
                records++;
            }
        }
        return new Result((System.nanoTime() - start) / 1e9, records, all.getValue());
    }

    private static String host(SocketAddress address) {
        InetSocketAddress a = (InetSocketAddress) address;
        return a.getAddress().getHostAddress() + ":" + a.getPort();
    }
}
