package io.rstore.compat;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.ConsumeQueue;

/**
 * {@code Outcome STORE [sizes] [--set name=value]…}: opens a store, damaged as it may be, and prints what Apache makes
 * of it: besides the lines of the opening, an {@code outcome} line with every queue and a digest of its units.
 */
public final class Outcome {
    private static final int UNIT = 20;

    private Outcome() {
    }

    public static void main(String[] argv) {
        Exit.with(argv, Outcome::run);
    }

    static int run(Args args, Lines out) throws Exception {
        Path root = Path.of(args.word(0, "STORE"));
        Opening opening = new Opening(root, args, out);
        int code = opening.run();
        if (code == Exit.OPENED) {
            List<Map<String, Object>> queues = new ArrayList<>();
            for (ConsumeQueue queue : new Queues(opening.store()).all()) {
                queues.add(queue(root, queue));
            }
            out.print("outcome", "minPhyOffset", opening.store().getMinPhyOffset(), "maxPhyOffset",
                opening.store().getMaxPhyOffset(), "queues", queues);
            out.flush();
            opening.close();
        }
        return code;
    }

    private static Map<String, Object> queue(Path root, ConsumeQueue queue) throws IOException {
        Path directory = root.resolve("consumequeue").resolve(queue.getTopic()).resolve("" + queue.getQueueId());
        return Lines.of("topic", queue.getTopic(), "queueId", queue.getQueueId(), "min", queue.getMinOffsetInQueue(),
            "max", queue.getMaxOffsetInQueue(), "unitsSha256", digest(directory, queue.getMaxOffsetInQueue()));
    }

    /** SHA-256 of the units of the queue's files below {@code max}; null without a file. */
    private static String digest(Path directory, long max) throws IOException {
        List<Path> files = Disk.list(directory);
        if (files.isEmpty()) {
            return null;
        }
        MessageDigest digest = sha256();
        for (Path file : files) {
            long left = max * UNIT - Long.parseLong(file.getFileName().toString());
            try (InputStream in = Files.newInputStream(file)) {
                digest.update(in.readNBytes((int) Math.max(0, Math.min(left, Integer.MAX_VALUE))));
            }
        }
        return HexFormat.of().formatHex(digest.digest());
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
