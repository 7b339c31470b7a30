package bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;

/**
 * One JVM measures one command, so that other work does not change what the JIT compiler has learned.
 *
 * <pre>
 * java bench.Main scan skip|body|crc|digest FILE...    MessageDecoder over commit log files
 * java bench.Main crc heap|direct SIZE                 java.util.zip.CRC32
 * java bench.Main put KEY=VALUE...                     DefaultMessageStore: see Put
 * java bench.Main load KEY=VALUE...                    recovery: see Load
 * java bench.Main fill KEY=VALUE...                    writes a store: see Fill
 * java bench.Main rebuild KEY=VALUE...                 consume queues and index from the log: see Rebuild
 * java bench.Main get KEY=VALUE...                     getMessage over a whole queue: see Get
 * java bench.Main query KEY=VALUE...                   queryMessage, getOffsetInQueueByTime: see Query
 * java bench.Main wake KEY=VALUE...                    from a put to the get of a waiting reader: see Wake
 * java bench.Main client KEY=VALUE...                  RocketMQ's client at a broker: see Client
 * </pre>
 *
 * Each line "go" on standard input runs one round and prints one JSON line; words after "go" are passed to the round.
 * The end of the input ends the program.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] argv) {
        try {
            serve(argv);
            System.exit(0);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1);                     // threads of RocketMQ would keep the JVM running
        }
    }

    private static void serve(String[] argv) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);              // output of libraries must not mix with the results
        if (argv.length < 2) {
            System.err.println("usage: bench.Main scan skip|body|crc|digest FILE... | crc heap|direct SIZE | "
                + "put|load|fill|rebuild|get|query|wake|client KEY=VALUE...");
            System.exit(2);
        }
        Round round = switch (argv[0]) {
            case "scan" -> new Scan(argv[1], Arrays.copyOfRange(argv, 2, argv.length));
            case "crc" -> new Crc(argv[1], Integer.parseInt(argv[2]));
            case "put" -> new Put(new Args(argv, 1));
            case "load" -> new Load(new Args(argv, 1));
            case "fill" -> new Fill(new Args(argv, 1));
            case "rebuild" -> new Rebuild(new Args(argv, 1));
            case "get" -> new Get(new Args(argv, 1));
            case "query" -> new Query(new Args(argv, 1));
            case "wake" -> new Wake(new Args(argv, 1));
            case "client" -> new Client(new Args(argv, 1));
            default -> throw new IllegalArgumentException(argv[0]);
        };
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (!line.equals("go") && !line.startsWith("go ")) {
                throw new IllegalArgumentException("expected go: " + line);
            }
            Round.Result r = round.run(line.substring(2).trim());
            String more = r.more().entrySet().stream()
                .map(e -> String.format(Locale.ROOT, "\"%s\":%.6f", e.getKey(), e.getValue()))
                .collect(Collectors.joining(","));
            answers.printf(Locale.ROOT, "{\"seconds\":%.9f,\"records\":%d,\"checksum\":%d,\"more\":{%s}}%n",
                r.seconds(), r.records(), r.checksum(), more);
            answers.flush();
        }
        round.close();
    }
}
