package io.rstore.compat;

import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Apache's store settings from a command line. */
final class Settings {
    /** Our options, by the name of the setting that each of them stands for. */
    private static final Map<String, String> SIZES = Map.of(
        "commitlog-file-size", "mappedFileSizeCommitLog",
        "queue-file-size", "mappedFileSizeConsumeQueue",
        "index-slots", "maxHashSlotNum",
        "index-entries", "maxIndexNum");

    private Settings() {
    }

    /** Settings for the store at {@code root}; {@code --set name=value} reaches every other one. */
    static MessageStoreConfig of(Path root, Args args) {
        // a full or an old disk must not make the store refuse puts or delete files in the middle of a test
        System.setProperty("rocketmq.broker.diskSpaceWarningLevelRatio", args.option("warning-ratio", "2"));
        System.setProperty("rocketmq.broker.diskSpaceCleanForciblyRatio", args.option("forcibly-ratio", "2"));
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setHaListenPort(0);
        config.setDeleteWhen("99");
        config.setDiskMaxUsedSpaceRatio(95);
        config.setCleanFileForciblyEnable(false);
        Properties given = new Properties();
        SIZES.forEach((option, setting) -> {
            if (args.has(option)) {
                given.setProperty(setting, args.option(option, null));
            }
        });
        for (String pair : args.all("set")) {
            int equals = pair.indexOf('=');
            if (equals < 1) {
                throw new IllegalArgumentException("--set wants name=value: " + pair);
            }
            given.setProperty(pair.substring(0, equals), pair.substring(equals + 1));
        }
        MixAll.properties2Object(given, config);
        if (args.has("sync-flush")) {
            config.setFlushDiskType(FlushDiskType.SYNC_FLUSH);
        }
        return config;
    }
}
