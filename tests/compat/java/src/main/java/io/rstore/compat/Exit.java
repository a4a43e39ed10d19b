package io.rstore.compat;

import org.apache.rocketmq.logging.inner.SysLogger;

/** What a run ends with. */
final class Exit {
    static final int OPENED = 0;
    static final int USAGE = 1;
    static final int NOT_LOADED = 2;
    static final int NOT_STARTED = 3;
    static final int ERROR = 4;

    private Exit() {
    }

    /** Something to run that ends with one of the codes. */
    interface Body {
        int run(Args args, Lines out) throws Exception;
    }

    /** Runs a main: prints what it printed, and ends the process whatever threads the store has left. */
    static void with(String[] argv, Body body) {
        SysLogger.setQuietMode(true);
        Lines out = new Lines();
        int code = run(argv, body, out);
        out.flush();
        if (Boolean.getBoolean("rstore.archive")) {
            System.exit(code); // a Java that halts leaves no archive of its classes
        }
        Runtime.getRuntime().halt(code);
    }

    /** Runs a body; what escapes from it becomes a line and a code. */
    static int run(String[] argv, Body body, Lines out) {
        try {
            return body.run(new Args(argv), out);
        } catch (Throwable e) {
            if (e instanceof IllegalArgumentException && isOurs(e)) {
                System.err.println(e.getMessage());
                return USAGE;
            }
            out.print("error", "error", e.toString());
            return ERROR;
        }
    }

    /** Whether it was thrown here, at words that make no sense: Apache's store throws such ones at damage. */
    private static boolean isOurs(Throwable e) {
        StackTraceElement[] trace = e.getStackTrace();
        return trace.length > 0 && trace[0].getClassName().startsWith(Exit.class.getPackageName());
    }
}
