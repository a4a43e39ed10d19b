package io.rstore.compat;

import java.nio.file.Path;
import java.util.TreeMap;
import org.apache.rocketmq.store.StoreCheckpoint;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Opens a store as a broker does, load and then start, and prints how that went. */
final class Opening {
    private final Path root;
    private final Args args;
    private final Lines out;
    private QuietStore store;

    Opening(Path root, Args args, Lines out) {
        this.root = root;
        this.args = args;
        this.out = out;
    }

    QuietStore store() {
        return store;
    }

    /** Opens the store: {@link Exit#OPENED}, {@link Exit#NOT_LOADED} or {@link Exit#NOT_STARTED}. */
    int run() throws Exception {
        Disk disk = new Disk(root);
        out.print("before", "abortFile", disk.abort(), "abortSize", disk.abortSize(), "checkpoint", disk.checkpoint());
        out.print("filesBefore", "files", disk.files());
        boolean lastExitOk = !disk.abort();
        MessageStoreConfig config = Settings.of(root, args);
        long begin = System.nanoTime();
        store = QuietStore.of(config);
        boolean loaded = store.load();
        out.print("load", "result", loaded, "lastExitOK", lastExitOk, "loadMs", millisSince(begin));
        out.flush();
        if (!loaded) {
            return Exit.NOT_LOADED;
        }
        printAfterLoad();
        return start();
    }

    private void printAfterLoad() {
        out.print("afterLoad", "minPhyOffset", store.getMinPhyOffset(), "maxPhyOffset", store.getMaxPhyOffset(),
            "checkpoint", checkpoint(), "queues", new Queues(store).summary());
        out.flush();
    }

    private int start() {
        long begin = System.nanoTime();
        try {
            store.start();
        } catch (Exception e) {
            out.print("start", "error", e.toString());
            return Exit.NOT_STARTED;
        }
        out.print("start", "startMs", millisSince(begin));
        out.print("store", "minPhyOffset", store.getMinPhyOffset(), "maxPhyOffset", store.getMaxPhyOffset(),
            "dispatchBehindBytes", store.dispatchBehindBytes(), "checkpoint", checkpoint(), "writeable",
            store.getRunningFlags().isWriteable(), "flagBits", store.getRunningFlags().getFlagBits(),
            "topicQueueTable", new TreeMap<>(store.getCommitLog().getTopicQueueTable()));
        out.flush();
        return Exit.OPENED;
    }

    /** Closes an open store as a broker does, and prints what that left. */
    void close() throws Exception {
        store.shutdown();
        printClosed();
    }

    /** Prints what lies on the disk now. */
    void printClosed() throws Exception {
        Disk disk = new Disk(root);
        out.print("shutdown", "abortExists", disk.abort(), "checkpoint", disk.checkpoint());
        out.print("filesAfter", "files", disk.files());
        out.flush();
    }

    private Object checkpoint() {
        StoreCheckpoint checkpoint = store.getStoreCheckpoint();
        return Lines.of("physicMsgTimestamp", checkpoint.getPhysicMsgTimestamp(), "logicsMsgTimestamp",
            checkpoint.getLogicsMsgTimestamp(), "indexMsgTimestamp", checkpoint.getIndexMsgTimestamp());
    }

    private static double millisSince(long begin) {
        return (System.nanoTime() - begin) / 1e6;
    }
}
