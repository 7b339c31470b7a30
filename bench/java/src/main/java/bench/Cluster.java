package bench;

import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * RocketMQ's name server and broker in one process, as ours: bench.Cluster ROOT [NAME=VALUE...]. Prints a line of JSON
 * with the ports, {"nameServer": 1, "broker": 2}, when both listen. The end of the input ends it at once.
 *
 * <p>NAME is a setting of MessageStoreConfig. All others are RocketMQ's defaults, except that nothing depends on how
 * full the disk is, and that no request is refused because it has waited.
 */
public final class Cluster {
    private Cluster() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // logs
        // The start-up scripts set these; without a version, requests take the oldest paths.
        System.setProperty("rocketmq.remoting.version", String.valueOf(MQVersion.CURRENT_VERSION));
        System.setProperty("rocketmq.home.dir", args[0]);
        Path root = Path.of(args[0]).toAbsolutePath();
        NamesrvConfig names = new NamesrvConfig();
        names.setKvConfigPath(root.resolve("kvConfig.json").toString());
        names.setConfigStorePath(root.resolve("namesrv.properties").toString());
        int namePort = free(0);
        NamesrvController nameServer = new NamesrvController(names, listening(namePort));
        must(nameServer.initialize());
        nameServer.start();
        BrokerConfig config = new BrokerConfig();
        config.setNamesrvAddr("127.0.0.1:" + namePort);
        config.setBrokerName("broker-a");
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerIP2("127.0.0.1");
        config.setBrokerFastFailureEnable(false);
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(root.resolve("store").toString());
        store.setStorePathCommitLog(root.resolve("store/commitlog").toString()); // 4.x does not derive it
        store.setHaListenPort(free(0));
        store.setDiskMaxUsedSpaceRatio(95);
        Properties settings = new Properties();
        for (int i = 1; i < args.length; i++) {
            settings.setProperty(args[i].substring(0, args[i].indexOf('=')), args[i].substring(args[i].indexOf('=') + 1));
        }
        MixAll.properties2Object(settings, store);
        int port = free(2);
        BrokerController broker = new BrokerController(config, listening(port), new NettyClientConfig(), store);
        must(broker.initialize());
        broker.start();
        for (int i = 0; nameServer.getRouteInfoManager().pickupTopicRouteData("BenchTopic") == null; i++) {
            must(i < 200);
            broker.registerBrokerAll(true, false, true); // the first call of 5.x finds no connection
            Thread.sleep(50);
        }
        answers.printf("{\"nameServer\":%d,\"broker\":%d}%n", namePort, port);
        answers.flush();
        while (System.in.read() >= 0) {
            Thread.onSpinWait();
        }
        Runtime.getRuntime().halt(0);
    }

    private static NettyServerConfig listening(int port) {
        NettyServerConfig config = new NettyServerConfig();
        config.setListenPort(port);
        Properties properties = new Properties();
        properties.setProperty("bindAddress", "127.0.0.1"); // unknown to 4.x
        MixAll.properties2Object(properties, config);
        return config;
    }

    /** A free port; the port that is `below` lower is free, too. */
    private static int free(int below) throws Exception {
        InetAddress local = InetAddress.getByName("127.0.0.1");
        while (true) {
            try (ServerSocket one = new ServerSocket(0, 1, local)) {
                int port = one.getLocalPort();
                if (below > 0) {
                    new ServerSocket(port - below, 1, local).close();
                }
                return port;
            } catch (java.net.BindException e) {
                continue;
            }
        }
    }

    private static void must(boolean ok) {
        if (!ok) {
            throw new IllegalStateException("the name server or the broker did not start");
        }
    }
}
