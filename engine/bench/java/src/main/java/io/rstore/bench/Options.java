package io.rstore.bench;

import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/** A command line of {@code name=value} words. */
final class Options {
    private final Map<String, String> values = new LinkedHashMap<>();

    Options(String[] words) {
        for (String word : words) {
            int equals = word.indexOf('=');
            if (equals < 1) {
                throw new IllegalArgumentException("not name=value: " + word);
            }
            values.put(word.substring(0, equals), word.substring(equals + 1));
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing: " + name);
        }
        return value;
    }

    int number(String name) {
        return Integer.parseInt(text(name));
    }

    long big(String name) {
        return Long.parseLong(text(name));
    }

    Path root() {
        return Path.of(text("root"));
    }

    /** The words that name settings of Apache's: those with {@code set.} before the name. */
    Map<String, String> settings() {
        Map<String, String> found = new LinkedHashMap<>();
        values.forEach((name, value) -> {
            if (name.startsWith("set.")) {
                found.put(name.substring(4), value);
            }
        });
        return found;
    }
}
