package io.rstore.compat;

import java.nio.file.Path;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * {@code Clean STORE [sizes] [--set name=value]… [--rounds N] [--manually] [--hold-until N] [--warning-ratio R]
 * [--forcibly-ratio R]}: opens a store as a broker does and has it delete what has expired, {@code N} rounds of what a
 * broker does every ten seconds. {@code --hold-until}: a reader has the first log file until before that round. Prints a
 * {@code round} line after each, with the files that are left and every queue's offsets.
 */
public final class Clean {
    private Clean() {
    }

    public static void main(String[] argv) {
        Exit.with(argv, Clean::run);
    }

    private static int run(Args args, Lines out) throws Exception {
        Path root = Path.of(args.word(0, "STORE"));
        Opening opening = new Opening(root, args, out);
        int code = opening.run();
        if (code != Exit.OPENED) {
            return code;
        }
        QuietStore store = opening.store();
        if (args.has("manually")) {
            store.executeDeleteFilesManually();
        }
        int release = Integer.parseInt(args.option("hold-until", "-1"));
        SelectMappedBufferResult held = release < 0 ? null : store.getCommitLogData(store.getMinPhyOffset());
        for (int round = 0; round < Integer.parseInt(args.option("rounds", "1")); round++) {
            if (round == release) {
                held.release();
            }
            store.cleanFilesPeriodically();
            out.print("round", "minPhyOffset", store.getMinPhyOffset(), "writeable",
                store.getRunningFlags().isWriteable(), "queues", new Queues(store).summary(), "files",
                new Disk(root).files());
            out.flush();
        }
        opening.close();
        return Exit.OPENED;
    }
}
