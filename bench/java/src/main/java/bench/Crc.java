package bench;

import java.nio.ByteBuffer;
import java.util.zip.CRC32;

/** java.util.zip.CRC32 over one small buffer again and again; records = how often, checksum = the CRC. */
final class Crc implements Round {
    private final byte[] heap;
    private final ByteBuffer direct;            // null: use the heap array
    private final long times;

    Crc(String where, int size) {
        heap = new byte[size];
        for (int i = 0; i < size; i++) {
            heap[i] = (byte) (i * 131 + (i >> 7));
        }
        direct = switch (where) {
            case "heap" -> null;
            case "direct" -> ByteBuffer.allocateDirect(size).put(heap);
            default -> throw new IllegalArgumentException(where);
        };
        times = Math.max(200, 5_000_000_000L / (size + 100));
    }

    @Override
    public Result run() {
        return direct == null ? runHeap() : runDirect();
    }

    private Result runHeap() {
        CRC32 crc = new CRC32();
        long last = 0;
        long start = System.nanoTime();
        for (long i = 0; i < times; i++) {
            crc.reset();
            crc.update(heap, 0, heap.length);
            last = crc.getValue();
        }
        return new Result((System.nanoTime() - start) / 1e9, times, last);
    }

    private Result runDirect() {
        CRC32 crc = new CRC32();
        long last = 0;
        long start = System.nanoTime();
        for (long i = 0; i < times; i++) {
            crc.reset();
            direct.rewind();
            crc.update(direct);
            last = crc.getValue();
        }
        return new Result((System.nanoTime() - start) / 1e9, times, last);
    }
}
