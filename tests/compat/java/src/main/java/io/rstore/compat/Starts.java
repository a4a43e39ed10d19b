package io.rstore.compat;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Permission;

/**
 * {@code Starts DIRECTORY}: for each file in it, whether Apache's BrokerStartup starts a broker with it, all in one
 * process: its System.exit is an exception here. What has started runs on until the process ends. The broker's jars
 * are looked up by name, as this side is built without them.
 */
public final class Starts {
    private static final String MAIN = "org.apache.rocketmq.broker.BrokerStartup";
    private static final long LONGEST_MS = 30_000;

    private Starts() {
    }

    public static void main(String[] argv) {
        Exit.with(argv, Starts::run);
    }

    @SuppressWarnings({"removal", "deprecation"})
    private static int run(Args args, Lines out) throws Exception {
        System.setSecurityManager(new NoExit());
        try (var files = Files.list(Path.of(args.word(0, "DIRECTORY")))) {
            for (Path file : files.sorted().toList()) {
                start(file, out);
            }
        } finally {
            System.setSecurityManager(null);  // the end of this process is none of a broker
        }
        return Exit.OPENED;
    }

    private static void start(Path file, Lines out) throws Exception {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(said, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        Object[] started = new Object[1];
        Thread thread = new Thread(() -> started[0] = starts(file, capture));
        thread.start();
        thread.join(LONGEST_MS);
        out.print("start", "file", file.getFileName().toString(), "ended", !thread.isAlive(), "started",
            started[0] != null, "bits", started[0] == null ? 0 : bits(started[0]), "said", said.toString(StandardCharsets.UTF_8));
        out.flush();
    }

    /** Bits of a filter bit map, which the start computes. */
    private static Object bits(Object controller) throws ReflectiveOperationException {
        Object config = controller.getClass().getMethod("getMessageStoreConfig").invoke(controller);
        return config.getClass().getMethod("getBitMapLengthConsumeQueueExt").invoke(config);
    }

    /** The broker, null: it did not start. */
    private static Object starts(Path file, PrintStream said) {
        try {
            Class<?> startup = Class.forName(MAIN);
            Method create = startup.getMethod("createBrokerController", String[].class);
            Object controller = create.invoke(null, (Object) new String[] {"-c", file.toString()});
            startup.getMethod("start", controller.getClass()).invoke(null, controller);
            return controller;
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof Exited)) {
                e.getCause().printStackTrace(said);
            }
            return null;
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static final class Exited extends SecurityException {
        private static final long serialVersionUID = 1;

        @Override
        public synchronized Throwable fillInStackTrace() {
            return this;
        }
    }

    @SuppressWarnings({"removal", "deprecation"})
    private static final class NoExit extends SecurityManager {
        @Override
        public void checkExit(int status) {
            throw new Exited();
        }

        @Override
        public void checkPermission(Permission permission) {
        }

        @Override
        public void checkPermission(Permission permission, Object context) {
        }
    }
}
