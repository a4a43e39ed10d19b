package io.rstore.compat;

import java.io.OutputStream;
import java.nio.file.Path;

/**
 * {@code Live STORE [sizes] [--set name=value]… [--crash]}: opens a store as a broker does, prints how that went, and
 * keeps it open until standard input ends; then closes it, or leaves it as a killed broker does.
 */
public final class Live {
    private Live() {
    }

    public static void main(String[] argv) {
        Exit.with(argv, Live::run);
    }

    private static int run(Args args, Lines out) throws Exception {
        Opening opening = new Opening(Path.of(args.word(0, "STORE")), args, out);
        int code = opening.run();
        if (code != Exit.OPENED) {
            return code;
        }
        out.print("live");
        out.flush();
        System.in.transferTo(OutputStream.nullOutputStream());
        if (!args.has("crash")) {
            opening.close();
        }
        return Exit.OPENED;
    }
}
