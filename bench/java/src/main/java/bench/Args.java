package bench;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** The arguments key=value of a command. */
final class Args {
    private final Map<String, String> values = new HashMap<>();

    Args(String[] argv, int from) {
        for (int i = from; i < argv.length; i++) {
            int at = argv[i].indexOf('=');
            if (at < 0) {
                throw new IllegalArgumentException("not key=value: " + argv[i]);
            }
            values.put(argv[i].substring(0, at), argv[i].substring(at + 1));
        }
    }

    String text(String key, String otherwise) {
        return values.getOrDefault(key, otherwise);
    }

    int number(String key, int otherwise) {
        return values.containsKey(key) ? Integer.parseInt(values.get(key)) : otherwise;
    }

    boolean flag(String key) {
        return Boolean.parseBoolean(values.get(key));
    }

    Path dir() {
        return Path.of(values.get("dir")).toAbsolutePath();
    }
}
