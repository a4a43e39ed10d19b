package io.rstore.compat;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** A command line: words, {@code --switch}es and {@code --option value} pairs. */
final class Args {
    /** Options that take no value. */
    private static final Set<String> SWITCHES = Set.of("crash", "keep", "log", "query-all", "sync-flush", "bitmaps",
        "manually", "pull");

    /** Options that take one. */
    private static final Set<String> VALUED = Set.of("commitlog-file-size", "queue-file-size", "index-slots",
        "index-entries", "set", "queries", "puts", "hold", "rounds",
        "hold-until", "warning-ratio", "forcibly-ratio", "wanted", "at-once", "timeout");

    private final List<String> words = new ArrayList<>();
    private final Map<String, List<String>> options = new LinkedHashMap<>();

    Args(String[] argv) {
        for (int i = 0; i < argv.length; i++) {
            if (!argv[i].startsWith("--")) {
                words.add(argv[i]);
                continue;
            }
            String name = argv[i].substring(2);
            String value = "";
            if (!SWITCHES.contains(name)) {
                if (!VALUED.contains(name)) {
                    throw new IllegalArgumentException("unknown option: --" + name);
                }
                if (++i == argv.length) {
                    throw new IllegalArgumentException("--" + name + " needs a value");
                }
                value = argv[i];
            }
            options.computeIfAbsent(name, key -> new ArrayList<>()).add(value);
        }
    }

    /** The word at {@code index}, which {@code what} names in the message when it is missing. */
    String word(int index, String what) {
        if (index >= words.size()) {
            throw new IllegalArgumentException("missing argument: " + what);
        }
        return words.get(index);
    }

    boolean has(String option) {
        return options.containsKey(option);
    }

    /** The last value given for an option, or {@code fallback}. */
    String option(String option, String fallback) {
        List<String> values = options.get(option);
        return values == null ? fallback : values.get(values.size() - 1);
    }

    /** Every value given for an option, in order. */
    List<String> all(String option) {
        return options.getOrDefault(option, List.of());
    }
}
