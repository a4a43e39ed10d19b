package io.rstore.bench;

import java.io.IOException;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Properties;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Apache's own store with a broker's settings, less what is no part of the work that is measured: delayed messages are
 * not delivered, nothing is deleted, and the replication port is a free one of the loopback interface.
 */
final class BenchStore extends DefaultMessageStore {
    private BenchStore(MessageStoreConfig config) throws IOException {
        super(config, new BrokerStatsManager("bench", true), (topic, queue, offset, tags, time, bits, properties) -> {
        }, new BrokerConfig());
        try {
            Object acceptor = open(getHaService().getClass(), "acceptSocketService").get(getHaService());
            open(acceptor.getClass(), "socketAddressListen").set(acceptor,
                new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("not the store of 4.9.8", e);
        }
    }

    /** A store, neither loaded nor started. */
    static BenchStore of(Options options) throws IOException {
        // a full disk must not make it refuse puts or delete files in the middle of a measure
        System.setProperty("rocketmq.broker.diskSpaceWarningLevelRatio", "2");
        System.setProperty("rocketmq.broker.diskSpaceCleanForciblyRatio", "2");
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(options.root().toString());
        config.setStorePathCommitLog(options.root().resolve("commitlog").toString());
        config.setHaListenPort(0);
        config.setDeleteWhen("99");
        config.setDiskMaxUsedSpaceRatio(95);
        config.setCleanFileForciblyEnable(false);
        Properties given = new Properties();
        given.putAll(options.settings());
        MixAll.properties2Object(given, config);
        return new BenchStore(config);
    }

    /** A store that is open, as a broker's. */
    static BenchStore opened(Options options) throws Exception {
        BenchStore store = of(options);
        store.demandLoad();
        store.start();
        return store;
    }

    void demandLoad() {
        if (!load()) {
            throw new IllegalStateException("load() gave false");
        }
    }

    @Override
    public void handleScheduleMessageService(BrokerRole role) {
        // never started: see the class comment
    }

    private static Field open(Class<?> declaring, String name) throws NoSuchFieldException {
        Field field = declaring.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }
}
