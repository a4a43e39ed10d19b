package io.rstore.compat;

import java.nio.file.Path;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;

/**
 * {@code Read STORE [sizes] [--set name=value]… [--keep] [--log] [--queries FILE] [--query-all]}: opens a store as a
 * broker does, prints everything that it reads from it, and closes it. {@code --keep} works on a copy of the store.
 */
public final class Read {
    private Read() {
    }

    public static void main(String[] argv) {
        Exit.with(argv, Read::run);
    }

    static int run(Args args, Lines out) throws Exception {
        Path given = Path.of(args.word(0, "STORE"));
        if (!args.has("keep")) {
            return read(given, args, out);
        }
        try (Copy copy = new Copy(given)) {
            return read(copy.path(), args, out);
        }
    }

    private static int read(Path root, Args args, Lines out) throws Exception {
        Opening opening = new Opening(root, args, out);
        int code = opening.run();
        if (code != Exit.OPENED) {
            opening.printClosed();
            return code;
        }
        QuietStore store = opening.store();
        new Queues(store).print(out);
        if (args.has("log")) {
            new LogWalk(store).print(out);
        }
        for (Map<String, Object> header : new Disk(root).indexHeaders()) {
            Map<String, Object> line = Lines.of("type", "indexFile");
            line.putAll(header);
            out.print(line);
        }
        Queries queries = new Queries(store);
        Set<Queries.Key> keys = new LinkedHashSet<>();
        for (String file : args.all("queries")) {
            keys.addAll(Queries.from(Path.of(file)));
        }
        if (args.has("query-all")) {
            keys.addAll(queries.everyKey());
        }
        keys.forEach(key -> queries.print(key, out));
        opening.close();
        return Exit.OPENED;
    }
}
