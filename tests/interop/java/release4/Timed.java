import java.util.Map;

/** Timed messages: clients of 4.x have none. */
final class Timed {
    private Timed() {
    }

    static void register(Map<String, Clients.Scenario> all) {
    }
}
