import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
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
 * RocketMQ's own name server and broker in one process: JavaCluster ROOT [NAME=VALUE ...]. Prints a line of JSON,
 * {"nameServer": address, "broker": address}, as soon as both listen, and ends with its input: at once if that is
 * empty, in good order after a line.
 *
 * namePort, brokerPort       default: free ports; the broker also listens on brokerPort - 2
 * nameServer                 name server of the broker; default: the own one. "none" as namePort starts only a broker,
 *                            "none" as brokerPort only a name server
 * bindAddress                address that servers of 5.x listen on, default 127.0.0.1; 4.x listens on all addresses
 * broker.X, store.X, names.X, auth.X  settings of BrokerConfig, MessageStoreConfig, NamesrvConfig, AuthConfig
 */
public final class JavaCluster {
    /** Small files, delays of seconds, and no answers that depend on how busy the machine is. */
    private static final String[] DEFAULTS = {
        "broker.brokerName=broker-a", "broker.brokerClusterName=DefaultCluster", "broker.brokerIP1=127.0.0.1",
        "broker.brokerIP2=127.0.0.1", "broker.brokerFastFailureEnable=false", "store.mappedFileSizeCommitLog=33554432",
        "store.mappedFileSizeConsumeQueue=60000", "store.maxHashSlotNum=5000", "store.maxIndexNum=20000",
        "store.mappedFileSizeTimerLog=1048576", "store.diskMaxUsedSpaceRatio=95", "store.osPageCacheBusyTimeOutMills=60000",
        "store.messageDelayLevel=1s 2s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 3s"
    };

    private final Path root;
    private final Map<String, String> settings = new LinkedHashMap<>();

    private JavaCluster(String[] args) {
        root = Path.of(args[0]).toAbsolutePath();
        for (String pair : DEFAULTS) {
            settings.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        for (int i = 1; i < args.length; i++) {
            settings.put(args[i].substring(0, args[i].indexOf('=')), args[i].substring(args[i].indexOf('=') + 1));
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // logs
        // The start-up scripts set these; without the version, requests carry version 0 and take the oldest paths.
        System.setProperty("rocketmq.remoting.version", String.valueOf(MQVersion.CURRENT_VERSION));
        System.setProperty("rocketmq.home.dir", args[0]);
        try {
            serve(new JavaCluster(args), out);
        } catch (Throwable e) { // threads of what has started would keep the process alive
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void serve(JavaCluster cluster, PrintStream out) throws Exception {
        NamesrvController names = null;
        String nameServer = cluster.settings.get("nameServer");
        if (!"none".equals(cluster.settings.get("namePort"))) {
            int port = cluster.port("namePort", 0);
            names = cluster.names(port);
            nameServer = nameServer == null ? "127.0.0.1:" + port : nameServer;
        }
        BrokerController broker = null;
        if (!"none".equals(cluster.settings.get("brokerPort"))) {
            broker = cluster.broker(cluster.port("brokerPort", 2), nameServer);
            register(broker, names);
        }
        out.println("{\"nameServer\":\"" + nameServer + "\",\"broker\":\"" + (broker == null ? "" : broker.getBrokerAddr()) + "\"}");
        if (System.in.read() >= 0) {
            if (broker != null) {
                broker.shutdown();
            }
            if (names != null) {
                names.shutdown();
            }
            out.println("{}");
        }
    }

    private NamesrvController names(int port) throws Exception {
        NamesrvConfig config = new NamesrvConfig();
        config.setKvConfigPath(root.resolve("kvConfig.json").toString());
        config.setConfigStorePath(root.resolve("namesrv.properties").toString());
        MixAll.properties2Object(chosen("names."), config);
        NamesrvController names = new NamesrvController(config, server(port));
        must(names.initialize());
        names.start();
        return names;
    }

    private BrokerController broker(int port, String nameServer) throws Exception {
        BrokerConfig config = new BrokerConfig();
        config.setNamesrvAddr(nameServer);
        MixAll.properties2Object(chosen("broker."), config);
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(root.resolve("store").toString());
        store.setStorePathCommitLog(root.resolve("store/commitlog").toString()); // 4.x does not derive it from the root
        store.setHaListenPort(free(0));
        MixAll.properties2Object(chosen("store."), store);
        BrokerController broker = controller(config, server(port), store);
        must(broker.initialize());
        broker.start();
        return broker;
    }

    /** The controller; with its settings of ACL 2.0, which only 5.x has, if there are any. */
    private BrokerController controller(BrokerConfig config, NettyServerConfig server, MessageStoreConfig store)
        throws Exception {
        Properties of = chosen("auth.");
        if (of.isEmpty()) {
            return new BrokerController(config, server, new NettyClientConfig(), store);
        }
        Class<?> kind = Class.forName("org.apache.rocketmq.auth.config.AuthConfig");
        Object auth = kind.getConstructor().newInstance();
        of.setProperty("configName", config.getBrokerName());
        of.setProperty("clusterName", config.getBrokerClusterName());
        of.setProperty("authConfigPath", root.resolve("store/config").toString());
        MixAll.properties2Object(of, auth);
        return BrokerController.class
            .getConstructor(BrokerConfig.class, NettyServerConfig.class, NettyClientConfig.class, MessageStoreConfig.class, kind)
            .newInstance(config, server, new NettyClientConfig(), store, auth);
    }

    /** Registers until the name server knows the topics: the first call of 5.x finds no connection to it. */
    private static void register(BrokerController broker, NamesrvController names) throws Exception {
        for (int i = 0; i < 200; i++) {
            broker.registerBrokerAll(true, false, true);
            if (names == null ? i == 20 : names.getRouteInfoManager().pickupTopicRouteData("TBW102") != null) {
                return;
            }
            Thread.sleep(50);
        }
    }

    private NettyServerConfig server(int port) {
        NettyServerConfig config = new NettyServerConfig();
        config.setListenPort(port);
        Properties properties = new Properties();
        properties.setProperty("bindAddress", settings.getOrDefault("bindAddress", "127.0.0.1"));
        MixAll.properties2Object(properties, config);
        return config;
    }

    private Properties chosen(String kind) {
        Properties properties = new Properties();
        settings.forEach((name, value) -> {
            if (name.startsWith(kind)) {
                properties.setProperty(name.substring(kind.length()), value);
            }
        });
        return properties;
    }

    private int port(String name, int below) throws Exception {
        return settings.containsKey(name) ? Integer.parseInt(settings.get(name)) : free(below);
    }

    /** A free port; the port that is `below` lower is free too. */
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
                continue; // the neighbour is in use
            }
        }
    }

    private static void must(boolean ok) {
        if (!ok) {
            throw new IllegalStateException("initialize() said no");
        }
    }
}
