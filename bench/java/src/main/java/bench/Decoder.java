package bench;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** MessageDecoder.decode of whichever release is on the class path, as a constant handle that the JIT inlines. */
final class Decoder {
    /** 5.x checks the CRC itself: decode(buffer, readBody, deCompressBody, isClient, isSetPropertiesString, checkCRC). */
    private static final boolean CHECKS_CRC = find(6) != null;
    private static final MethodHandle DECODE = handle();

    private Decoder() {
    }

    private static Method find(int parameters) {
        for (Method m : MessageDecoder.class.getMethods()) {
            if (m.getName().equals("decode") && m.getParameterCount() == parameters) {
                return m;
            }
        }
        return null;
    }

    /** (ByteBuffer, boolean checkCRC) to MessageExt; the body is read and decompressed. */
    private static MethodHandle handle() {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            if (CHECKS_CRC) {
                return MethodHandles.insertArguments(lookup.unreflect(find(6)), 1, true, true, false, false);
            }
            MethodHandle four = MethodHandles.insertArguments(lookup.unreflect(find(4)), 1, true, true, false);
            return MethodHandles.dropArguments(four, 1, boolean.class);
        } catch (IllegalAccessException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    /** The record at the position of b; moves b behind it. */
    static MessageExt decode(ByteBuffer b, boolean crc) throws Throwable {
        MessageExt m = (MessageExt) DECODE.invokeExact(b, crc);
        if (m == null) {
            throw new IllegalStateException("RocketMQ can't decode the record before " + b.position());
        }
        if (crc && !CHECKS_CRC && UtilAll.crc32(m.getBody()) != m.getBodyCRC()) {
            throw new IllegalStateException("bad body CRC before " + b.position());
        }
        return m;
    }
}
