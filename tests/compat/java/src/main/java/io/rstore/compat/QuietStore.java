package io.rstore.compat;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.index.IndexService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Apache's own store, less what would disturb a test: delayed messages are not delivered (that would write to
 * the store by itself), and the replication port is a free one of the loopback interface.
 */
final class QuietStore extends DefaultMessageStore {
    /**
     * A store, not yet loaded. One at a time: each one's StoreStatsService fills a static TreeMap of 4.9.8's that has no
     * lock, and two that do so at once can break it for the rest of the process.
     */
    static synchronized QuietStore of(MessageStoreConfig config) throws IOException {
        return new QuietStore(config);
    }

    private QuietStore(MessageStoreConfig config) throws IOException {
        super(config, new BrokerStatsManager("compat", true), (topic, queue, offset, tags, time, bits, properties) -> {
        }, new BrokerConfig());
        Object acceptor = field(getHaService(), "acceptSocketService");
        set(acceptor, "socketAddressListen", new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
    }

    @Override
    public void handleScheduleMessageService(BrokerRole role) {
        // never started: see the class comment
    }

    /** The index, which Apache keeps to itself. */
    IndexService index() {
        return (IndexService) field(this, DefaultMessageStore.class, "indexService");
    }

    /** One round of what a broker does every ten seconds, now. */
    void cleanFilesPeriodically() {
        try {
            Method round = DefaultMessageStore.class.getDeclaredMethod("cleanFilesPeriodically");
            round.setAccessible(true);
            round.invoke(this);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("not the store of 4.9.8: no cleanFilesPeriodically", e);
        }
    }

    private static Object field(Object owner, String name) {
        return field(owner, owner.getClass(), name);
    }

    private static Object field(Object owner, Class<?> declaring, String name) {
        try {
            return open(declaring, name).get(owner);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("not the store of 4.9.8: no " + name, e);
        }
    }

    private static void set(Object owner, String name, Object value) {
        try {
            open(owner.getClass(), name).set(owner, value);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("not the store of 4.9.8: no " + name, e);
        }
    }

    private static Field open(Class<?> declaring, String name) throws NoSuchFieldException {
        Field field = declaring.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }
}
