package io.rstore.compat5;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ConcurrentMap;
import java.util.stream.Stream;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.ReferredIterator;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * The message store of RocketMQ 5 on many stores, in one process.
 *
 * <p>{@code Starts5 start JOBS AT_ONCE SECONDS}: a line of JOBS is STORE, settings and topics with a queue.type, by tabs;
 * settings and topics are {@code name=value} with {@code ;} between. Each store is loaded and started as a broker does,
 * and a line of JSON tells what came of it; with a fourth field, a file that Holds5 reads, also which messages it gives.
 *
 * <p>{@code Starts5 write STORE SETTINGS TOPICS MESSAGES SEED PAUSE_AT}: puts messages into a new store; with PAUSE_AT
 * above 0 it waits there until all that was put is in the checkpoint, and the process is halted at the end.
 *
 * <p>{@code Starts5 put STORE SETTINGS PUTS}: puts what the lines of a puts file describe, prints the result of each, and
 * closes the store.
 */
public final class Starts5 {
    private static final int OPENED = 0;
    private static final int NOT_LOADED = 2;
    private static final int NOT_STARTED = 3;
    private static final int ERROR = 4;
    private static final long STILL_MS = 10_000;

    private Starts5() {
    }

    public static void main(String[] argv) throws Exception {
        System.setProperty("rocketmq.broker.diskSpaceWarningLevelRatio", "2");
        System.setProperty("rocketmq.broker.diskSpaceCleanForciblyRatio", "2");
        if (argv[0].equals("write")) {
            write(argv);
        } else if (argv[0].equals("put")) {
            put(argv);
        } else {
            start(Path.of(argv[1]), Integer.parseInt(argv[2]), Long.parseLong(argv[3]) * 1000);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void start(Path file, int atOnce, long millis) throws Exception {
        Queue<String> jobs = new ConcurrentLinkedQueue<>(Files.readAllLines(file));
        List<Thread> runners = new ArrayList<>();
        for (int i = 0; i < atOnce; i++) {
            Thread runner = new Thread(() -> {
                for (String job = jobs.poll(); job != null; job = jobs.poll()) {
                    String line = run(job.split("\t", -1), millis);
                    synchronized (System.out) {
                        System.out.println(line);
                    }
                }
            });
            runner.start();
            runners.add(runner);
        }
        for (Thread runner : runners) {
            runner.join();
        }
    }

    private static String run(String[] job, long millis) {
        String[] answer = new String[1];
        Thread thread = new Thread(() -> answer[0] = opened(job));
        thread.setDaemon(true);
        thread.start();
        try {
            thread.join(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        String said = thread.isAlive() ? "\"exit\": null" : answer[0];
        return "{\"store\": " + quoted(job[0]) + ", " + said + "}";
    }

    private static String opened(String[] job) {
        DefaultMessageStore store = null;
        try {
            store = store(Path.of(job[0]), job[1], job[2]);
            if (!store.load()) {
                return "\"exit\": " + NOT_LOADED + listing(job[0]);
            }
            store.start();
        } catch (Exception e) {
            return "\"exit\": " + NOT_STARTED + ", \"error\": " + quoted(e.toString()) + listing(job[0]);
        } catch (Throwable e) {
            return "\"exit\": " + ERROR + ", \"error\": " + quoted(e.toString()) + listing(job[0]);
        }
        try {
            settle(store);
            return "\"exit\": " + OPENED + ", \"min\": " + store.getMinPhyOffset() + ", \"max\": " + store.getMaxPhyOffset()
                + ", \"queues\": [" + String.join(", ", queues(store)) + "]" + listing(job[0])
                + (job.length > 3 ? Holds5.members(store, Path.of(job[0]), Path.of(job[3])) : "");
        } catch (Throwable e) {
            return "\"exit\": " + ERROR + ", \"error\": " + quoted(e.toString()) + listing(job[0]);
        } finally {
            store.shutdown();
        }
    }

    /** Waits until dispatch is through, or stands still: for longer than a busy machine keeps its thread waiting. */
    private static void settle(DefaultMessageStore store) throws InterruptedException {
        long before = -1;
        long end = 0;
        for (long behind = store.dispatchBehindBytes(); behind > 0; behind = store.dispatchBehindBytes()) {
            if (behind != before) {
                before = behind;
                end = System.currentTimeMillis() + STILL_MS;
            } else if (System.currentTimeMillis() > end) {
                break;
            }
            Thread.sleep(50);
        }
        Thread.sleep(100);
    }

    private static List<String> queues(DefaultMessageStore store) {
        List<String> lines = new ArrayList<>();
        for (ConcurrentMap<Integer, ConsumeQueueInterface> queues : store.getConsumeQueueTable().values()) {
            for (ConsumeQueueInterface queue : queues.values()) {
                lines.add("[" + quoted(queue.getTopic()) + ", " + queue.getQueueId() + ", " + queue.getMinOffsetInQueue()
                    + ", " + queue.getMaxOffsetInQueue() + ", " + queue.getMaxPhysicOffset() + ", [" + units(store, queue)
                    + "]]");
            }
        }
        return lines;
    }

    /** Physical offset of each unit of a plain queue, from its least offset on. */
    private static String units(DefaultMessageStore store, ConsumeQueueInterface queue) {
        List<String> places = new ArrayList<>();
        if (!queue.getCQType().toString().equals("SimpleCQ")) {
            return "";
        }
        long at = queue.getMinOffsetInQueue();
        while (at < queue.getMaxOffsetInQueue()) {
            ReferredIterator<CqUnit> units = queue.iterateFrom(at);
            if (units == null) {
                break;
            }
            try {
                while (units.hasNext()) {
                    places.add("" + units.next().getPos());
                    at++;
                }
            } finally {
                units.release();
            }
        }
        return String.join(",", places);
    }

    private static String listing(String root) {
        return ", \"log\": [" + names(root, "commitlog") + "], \"index\": [" + names(root, "index") + "]";
    }

    private static String names(String root, String directory) {
        Path path = Path.of(root, directory);
        if (!Files.isDirectory(path)) {
            return "";
        }
        try (Stream<Path> files = Files.list(path)) {
            return String.join(", ", files.map(file -> quoted(file.getFileName().toString())).sorted().toList());
        } catch (IOException e) {
            return quoted(e.toString());
        }
    }

    /**
     * A store, not yet loaded. One at a time: each one's StoreStatsService fills a static TreeMap that has no lock, and two
     * that do so at once can break it for the rest of the process.
     */
    private static synchronized DefaultMessageStore store(Path root, String settings, String topics) throws IOException {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setHaListenPort(0);
        config.setDeleteWhen("99");
        config.setDiskMaxUsedSpaceRatio(95);
        config.setCleanFileForciblyEnable(false);
        Properties given = new Properties();
        pairs(settings).forEach(given::setProperty);
        MixAll.properties2Object(given, config);
        BrokerConfig broker = new BrokerConfig();
        MixAll.properties2Object(given, broker);
        ConcurrentMap<String, TopicConfig> table = new ConcurrentHashMap<>();
        pairs(topics).forEach((topic, type) -> {
            TopicConfig one = new TopicConfig(topic);
            one.setAttributes(Map.of("queue.type", type));
            table.put(topic, one);
        });
        return new DefaultMessageStore(config, new BrokerStatsManager("compat", true),
            (topic, queue, offset, tags, time, bits, properties) -> { }, broker, table);
    }

    private static Map<String, String> pairs(String text) {
        Map<String, String> pairs = new ConcurrentHashMap<>();
        for (String pair : text.split(";")) {
            int equals = pair.indexOf('=');
            if (equals > 0) {
                pairs.put(pair.substring(0, equals), pair.substring(equals + 1));
            }
        }
        return pairs;
    }

    private static void write(String[] argv) throws Exception {
        DefaultMessageStore store = store(Path.of(argv[1]), argv[2], "");
        String[] topics = argv[3].split(",");
        int messages = Integer.parseInt(argv[4]);
        java.util.Random random = new java.util.Random(Long.parseLong(argv[5]));
        int pauseAt = Integer.parseInt(argv[6]);
        if (!store.load()) {
            throw new IllegalStateException("not loaded");
        }
        store.start();
        for (int i = 0; i < messages; i++) {
            PutMessageResult put = store.putMessage(message(topics[random.nextInt(topics.length)], i, random));
            if (!put.isOk()) {
                throw new IllegalStateException(put.toString());
            }
            if (pauseAt > 0 && (i == pauseAt || i == pauseAt + pauseAt / 10)) {
                Thread.sleep(4500);
            }
        }
        settle(store);
        if (pauseAt == 0) {
            store.shutdown();
        }
        System.out.println("{\"max\": " + store.getMaxPhyOffset() + "}");
    }

    private static void put(String[] argv) throws Exception {
        DefaultMessageStore store = store(Path.of(argv[1]), argv[2], "");
        if (!store.load()) {
            throw new IllegalStateException("not loaded");
        }
        store.start();
        Puts5.putAll(store, Path.of(argv[3]));
        settle(store);
        store.shutdown();
    }

    private static MessageExtBrokerInner message(String topic, int number, java.util.Random random) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(random.nextInt(2));
        byte[] body = new byte[random.nextInt(160)];
        random.nextBytes(body);
        message.setBody(body);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
            String.format("%032X", number));
        message.setTags(random.nextBoolean() ? "even" : "odd");
        message.setKeys("key-" + number);
        message.setBornTimestamp(1_700_000_000_000L + number);
        message.setBornHost(new java.net.InetSocketAddress("127.0.0.1", 1000));
        message.setStoreHost(new java.net.InetSocketAddress("127.0.0.1", 10911));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            out.append(c < ' ' || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return out.append('"').toString();
    }
}
