package io.rstore.compat;

import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * {@code Entries DIRECTORY FILE-SIZE}: for each store in it, where DLedger ends the log when it recovers, all in one
 * process. What it can't recover is said, too.
 */
public final class Entries {
    private Entries() {
    }

    public static void main(String[] argv) {
        Exit.with(argv, Entries::run);
    }

    private static int run(Args args, Lines out) throws Exception {
        int size = Integer.parseInt(args.word(1, "FILE-SIZE"));
        try (var stores = Files.list(Path.of(args.word(0, "DIRECTORY")))) {
            for (Path store : stores.sorted().toList()) {
                recover(store, size, out);
                out.flush();
            }
        }
        return Exit.OPENED;
    }

    private static void recover(Path store, int size, Lines out) throws Exception {
        DLedgerConfig config = new DLedgerConfig();
        config.setStoreBaseDir(store.toString());
        config.setSelfId("n0");
        config.setGroup("broker-a");
        config.setPeers("n0-127.0.0.1:1");
        config.setMappedFileSizeForEntryData(size);
        config.setMappedFileSizeForEntryIndex(DLedgerMmapFileStore.INDEX_UNIT_SIZE * 4096);
        DLedgerMmapFileStore entries = new DLedgerMmapFileStore(config, new MemberState(config));
        String name = store.getFileName().toString();
        try {
            entries.load();
            entries.recover();
            out.print("entries", "store", name, "endIndex", entries.getLedgerEndIndex(), "endPos", entries.getWritePos(),
                "failed", "");
        } catch (RuntimeException refused) {
            out.print("entries", "store", name, "endIndex", -1L, "endPos", -1L, "failed", String.valueOf(refused.getMessage()));
        }
    }
}
