package bench;

import java.util.Map;

/** The one thing that this JVM measures. */
interface Round {
    /**
     * The time and the result of one round. The checksum proves that the work was done, and done correctly.
     * more: other figures of the round by name, such as cpu_us (of the whole JVM, per message) and p99_us.
     */
    record Result(double seconds, long records, long checksum, Map<String, Double> more) {
        Result(double seconds, long records, long checksum) {
            this(seconds, records, checksum, Map.of());
        }
    }

    Result run() throws Exception;

    /** words: what follows "go"; most rounds have no use for them. */
    default Result run(String words) throws Exception {
        return run();
    }

    /** At the end of the input. */
    default void close() throws Exception {
    }
}
