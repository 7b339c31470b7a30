import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * RocketMQ's own clients, which play named scenarios against a cluster. Commands are lines of JSON on stdin, answers
 * lines of JSON on stdout. The process ends with its input.
 *
 * list                                    answers with the names of all scenarios of this release
 * run names, nameServer, prefix, threads  plays the scenarios, `threads` at a time, and answers with one line for each
 *                                         as it ends: {scenario, millis, outcome}. Topics and groups begin with prefix.
 * send, consume, look                     see Steps
 *
 * An outcome holds no address, time or random id, so the same scenario gives the same outcome on every cluster that
 * behaves alike. A scenario that fails gives {"failed": text}. To add one, write a method that takes a Context and
 * returns a value made of maps, lists, texts and numbers, and put it into the `register` of its class.
 */
public final class Clients {
    /** One scenario. */
    interface Scenario {
        Object play(Context context) throws Exception;
    }

    private final Map<String, Scenario> scenarios = new TreeMap<>();
    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Clients() {
        Sends.register(scenarios);
        Requests.register(scenarios);
        Pushes.register(scenarios);
        Traces.register(scenarios);
        Pulls.register(scenarios);
        Lookups.register(scenarios);
        Raws.register(scenarios);
        Retries.register(scenarios);
        Timed.register(scenarios);
    }

    public static void main(String[] args) throws Exception {
        Clients clients = new Clients();
        System.setOut(System.err); // logs
        // The start-up scripts set this; without it, requests of NettyRemotingClient carry version 0.
        System.setProperty("rocketmq.remoting.version", String.valueOf(MQVersion.CURRENT_VERSION));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null;) {
            Map<?, ?> command = RemotingSerializable.fromJson(line, HashMap.class);
            if (command.get("do").equals("list")) {
                clients.tell(new ArrayList<>(clients.scenarios.keySet()));
            } else if (command.get("do").equals("run")) {
                clients.run(command);
            } else {
                clients.tell(clients.step(command));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private Object step(Map<?, ?> command) {
        try {
            return Steps.play(command);
        } catch (Throwable e) {
            e.printStackTrace();
            return Map.of("failed", String.valueOf(e));
        }
    }

    private void run(Map<?, ?> command) {
        ExecutorService pool = Executors.newFixedThreadPool(((Number) command.get("threads")).intValue());
        for (Object name : (List<?>) command.get("names")) {
            pool.submit(() -> play((String) name, (String) command.get("nameServer"), (String) command.get("prefix")));
        }
        pool.shutdown();
    }

    private void play(String name, String nameServer, String prefix) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("scenario", name);
        long start = System.nanoTime();
        Context context = new Context(nameServer, prefix + "-" + name + "-");
        try {
            answer.put("outcome", scenarios.get(name).play(context));
        } catch (Throwable e) {
            e.printStackTrace();
            answer.put("outcome", Map.of("failed", e.getClass().getSimpleName() + ": " + context.text(String.valueOf(e.getMessage()))));
        }
        answer.put("millis", (System.nanoTime() - start) / 1_000_000);
        new Thread(context::close).start(); // some clients end slowly
        tell(answer);
    }

    private synchronized void tell(Object answer) {
        out.println(RemotingSerializable.toJson(answer, false));
    }
}
