import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * RocketMQ's remoting protocol, for Peer. A command is {code, opaque, flag, remark, fields, body, form}; body is base64,
 * form is JSON or ROCKETMQ.
 *
 * encode  a command       the frame, in base64
 * decode  frame           the command; also version and language
 * invoke  a command, address, millis   send it with RocketMQ's own client; the answer as a command, null if oneway
 */
final class Frames {
    private static NettyRemotingClient client;

    private Frames() {}

    static Object encode(Map<String, Object> command) throws Exception {
        return text(made(command).encode());
    }

    static Object decode(Map<String, Object> command) throws Exception {
        ByteBuffer frame = ByteBuffer.wrap(Base64.getDecoder().decode((String) command.get("frame")));
        frame.getInt(); // RocketMQ's decoder gets the frame without its length
        return told(RemotingCommand.decode(frame.slice()));
    }

    static Object invoke(Map<String, Object> command) throws Exception {
        if (client == null) {
            client = new NettyRemotingClient(new NettyClientConfig());
            client.start();
        }
        String address = (String) command.get("address");
        long millis = ((Number) command.get("millis")).longValue();
        RemotingCommand request = made(command);
        if (Boolean.TRUE.equals(command.get("oneway"))) {
            client.invokeOneway(address, request, millis);
            return null;
        }
        return told(client.invokeSync(address, request, millis));
    }

    private static RemotingCommand made(Map<String, Object> command) {
        RemotingCommand made = RemotingCommand.createRequestCommand(((Number) command.get("code")).intValue(), null);
        if (command.get("opaque") != null) {
            made.setOpaque(((Number) command.get("opaque")).intValue());
            made.setFlag(((Number) command.get("flag")).intValue());
        }
        made.setRemark((String) command.get("remark"));
        HashMap<String, String> fields = new HashMap<>();
        ((Map<?, ?>) command.get("fields")).forEach((name, value) -> fields.put((String) name, (String) value));
        made.setExtFields(fields);
        if (command.get("body") != null) {
            made.setBody(Base64.getDecoder().decode((String) command.get("body")));
        }
        made.setSerializeTypeCurrentRPC(SerializeType.valueOf((String) command.get("form")));
        return made;
    }

    private static Map<String, Object> told(RemotingCommand command) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("code", command.getCode());
        told.put("opaque", command.getOpaque());
        told.put("flag", command.getFlag());
        told.put("remark", command.getRemark());
        told.put("fields", command.getExtFields() == null ? new HashMap<>() : command.getExtFields());
        told.put("body", command.getBody() == null ? "" : Base64.getEncoder().encodeToString(command.getBody()));
        told.put("version", command.getVersion());
        told.put("language", command.getLanguage().name());
        return told;
    }

    private static String text(ByteBuffer frame) {
        byte[] bytes = new byte[frame.remaining()];
        frame.get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }
}
