package bench;

/** The one thing that this JVM measures. */
interface Round {
    /** What one round took and gave; the checksum proves that the work was done, and done right. */
    record Result(double seconds, long records, long checksum) {
    }

    Result run() throws Exception;
}
