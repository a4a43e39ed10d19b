package io.rstore.compat;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * {@code Write STORE --puts FILE [sizes] [--set name=value]… [--sync-flush] [--bitmaps] [--crash]}: puts the messages
 * of a puts file, and prints the result of each.
 */
public final class Write {
    private Write() {
    }

    public static void main(String[] argv) {
        Exit.with(argv, Write::run);
    }

    private static int run(Args args, Lines out) throws Exception {
        List<String> lines = Files.readAllLines(Path.of(args.option("puts", "")));
        return Writing.run(args, out, puts -> {
            for (String line : lines) {
                if (!line.isBlank()) {
                    puts.put(line);
                }
            }
        });
    }
}
