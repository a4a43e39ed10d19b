package io.rstore.compat;

import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * {@code Lock STORE [--hold SECONDS]}: takes the lock of a store just as a broker does when it starts, prints
 * {@code {"locked": …}}, and holds it until standard input ends or the seconds are over.
 */
public final class Lock {
    private static final String UNTIL_INPUT_ENDS = "-1";

    private Lock() {
    }

    public static void main(String[] argv) {
        Exit.with(argv, Lock::run);
    }

    private static int run(Args args, Lines out) throws Exception {
        Path file = Files.createDirectories(Path.of(args.word(0, "STORE"))).resolve("lock");
        try (RandomAccessFile opened = new RandomAccessFile(file.toFile(), "rw")) {
            FileLock lock = opened.getChannel().tryLock(0, 1, false);
            boolean locked = lock != null && !lock.isShared() && lock.isValid();
            out.print(Lines.of("locked", locked));
            out.flush();
            if (!locked) {
                return Exit.NOT_STARTED;
            }
            hold(Long.parseLong(args.option("hold", UNTIL_INPUT_ENDS)));
            lock.release();
        }
        return Exit.OPENED;
    }

    private static void hold(long seconds) throws Exception {
        if (seconds >= 0) {
            Thread.sleep(seconds * 1000);
            return;
        }
        System.in.transferTo(OutputStream.nullOutputStream());
    }
}
