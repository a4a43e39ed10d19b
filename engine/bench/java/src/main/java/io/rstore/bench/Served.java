package io.rstore.bench;

import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Load for a running broker, whoever it is, by Apache's own client: sends that are waited for, pulls, and how long a
 * held pull takes to wake. Times of single calls are told in milliseconds.
 */
final class Served {
    private static final int SEND_TIMEOUT_MS = 10_000;
    private static final int PULL = 32;

    private final Options options;
    private final Clock clock;
    private final String topic;
    private final int threads;

    Served(Options options, Clock clock) {
        this.options = options;
        this.clock = clock;
        this.topic = options.text("topic");
        this.threads = options.number("callers");
    }

    /** {@code callers} threads send messages of {@code body} bytes, for {@code warm} and then {@code seconds} seconds. */
    Done send() throws Exception {
        DefaultMQProducer producer = producer("send");
        byte[] body = new byte[options.number("body")];
        Arrays.fill(body, (byte) 'x');
        long warmUntil = System.nanoTime() + options.number("warm") * 1_000_000_000L;
        long end = warmUntil + options.number("seconds") * 1_000_000_000L;
        AtomicLong failed = new AtomicLong();
        Times all = together(threads, times -> {
            for (long before = System.nanoTime(); before < end; ) {
                boolean stored;
                try {
                    stored = producer.send(new Message(topic, body), SEND_TIMEOUT_MS).getSendStatus() == SendStatus.SEND_OK;
                } catch (Exception e) {
                    stored = false;
                }
                long now = System.nanoTime();
                if (before >= warmUntil) {
                    if (stored) {
                        times.add(now - before);
                    } else {
                        failed.incrementAndGet();
                    }
                }
                before = now;
            }
        }, warmUntil);
        producer.shutdown();
        return all.done((long) all.count * body.length).with("failed", failed.get());
    }

    /** A thread a queue pulls all that is there, 32 at a time. */
    Done pull() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("rstore_bench_pull");
        consumer.setNamesrvAddr(options.text("names"));
        consumer.setInstanceName("pull");
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(topic));
        AtomicLong messages = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        Set<Integer> turn = java.util.concurrent.ConcurrentHashMap.newKeySet();
        Times all = together(queues.size(), times -> {
            int mine = 0;
            while (!turn.add(mine)) {
                mine++;
            }
            MessageQueue queue = queues.get(mine);
            long offset = 0;
            while (true) {
                long before = System.nanoTime();
                PullResult found = consumer.pull(queue, "*", offset, PULL);
                times.add(System.nanoTime() - before);
                if (found.getPullStatus() != PullStatus.FOUND) {
                    return;
                }
                messages.addAndGet(found.getMsgFoundList().size());
                found.getMsgFoundList().forEach(one -> bytes.addAndGet(one.getBody().length));
                offset = found.getNextBeginOffset();
            }
        }, System.nanoTime());
        consumer.shutdown();
        Done done = all.done(bytes.get());
        Done counted = new Done(messages.get(), bytes.get());
        counted.more.putAll(done.more);
        return counted;
    }

    /** One message at a time, with a pause before each, to a consumer that waits: from the send to the listener. */
    Done wake() throws Exception {
        int count = options.number("count");
        AtomicReference<CountDownLatch> come = new AtomicReference<>(new CountDownLatch(1));
        AtomicLong at = new AtomicLong();
        DefaultMQProducer producer = producer("wake-send");
        producer.send(new Message(topic, new byte[16]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("rstore_bench_wake");
        consumer.setNamesrvAddr(options.text("names"));
        consumer.setInstanceName("wake-get");
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (found, context) -> {
            at.set(System.nanoTime());
            come.get().countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        come.get().await();
        Times times = new Times();
        Compiled compiled = new Compiled(options.number("warm"), options.number("warmCalls"));
        boolean warm = false;
        while (times.count < count) {
            if (!warm && compiled.isAll()) {
                warm = true;
                clock.start();
            }
            if (warm) { // before, without pauses: what the client does is compiled then, and not while it is timed
                Thread.sleep(ThreadLocalRandom.current().nextInt(2, 9));
            }
            come.set(new CountDownLatch(1));
            long before = System.nanoTime();
            producer.send(new Message(topic, new byte[16]));
            come.get().await();
            if (warm) {
                times.add(at.get() - before);
            }
        }
        clock.stop();
        consumer.shutdown();
        producer.shutdown();
        return times.done(16L * count);
    }

    /** A push consumer takes {@code count} messages from the first on; timed from its start. */
    Done push() throws Exception {
        CountDownLatch left = new CountDownLatch(options.number("count"));
        AtomicLong bytes = new AtomicLong();
        clock.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("rstore_bench_push_apache");
        consumer.setNamesrvAddr(options.text("names"));
        consumer.setInstanceName("push");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (given, context) -> {
            given.forEach(one -> {
                bytes.addAndGet(one.getBody().length);
                left.countDown();
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await();
        clock.stop();
        consumer.shutdown();
        return new Done(options.number("count"), bytes.get());
    }

    private DefaultMQProducer producer(String name) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("rstore_bench");
        producer.setNamesrvAddr(options.text("names"));
        producer.setInstanceName(name);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        return producer;
    }

    private Times together(int count, Work work, long from) throws Exception {
        Times all = new Times();
        List<Thread> running = new ArrayList<>();
        AtomicReference<Exception> wrong = new AtomicReference<>();
        for (int i = 0; i < count; i++) {
            Thread thread = new Thread(() -> {
                Times mine = new Times();
                try {
                    work.run(mine);
                } catch (Exception e) {
                    wrong.set(e);
                }
                all.add(mine);
            });
            running.add(thread);
            thread.start();
        }
        Thread.sleep(Math.max(0, (from - System.nanoTime()) / 1_000_000));
        clock.start();
        for (Thread thread : running) {
            thread.join();
        }
        clock.stop();
        if (wrong.get() != null) {
            throw wrong.get();
        }
        return all;
    }

    /** Whether this process has compiled what it runs: for some seconds it has compiled next to nothing. */
    private static final class Compiled {
        private static final long LOOK_NANOS = 3_000_000_000L;
        private static final long LITTLE_MS = 30;
        private static final long LOOKS = 20;
        private final CompilationMXBean compiler = ManagementFactory.getCompilationMXBean();
        private final int leastCalls;
        private final long leastUntil;
        private final long mostUntil;
        private long lookAt;
        private long compiledMs;
        private long calls;

        /** Not before so many seconds and calls; after LOOKS looks whatever is compiled still. */
        Compiled(int leastS, int leastCalls) {
            this.leastCalls = leastCalls;
            long now = System.nanoTime();
            leastUntil = now + leastS * 1_000_000_000L;
            mostUntil = leastUntil + LOOKS * LOOK_NANOS;
            look(now);
        }

        /** Asked with each call. */
        boolean isAll() {
            calls++;
            long now = System.nanoTime();
            if (leastCalls == 0) { // a quick measure
                return now >= leastUntil;
            }
            if (now < lookAt) {
                return false;
            }
            long before = compiledMs;
            look(now);
            boolean isQuiet = compiledMs - before <= LITTLE_MS;
            return isQuiet && calls >= leastCalls && now >= leastUntil || now >= mostUntil;
        }

        private void look(long now) {
            lookAt = now + LOOK_NANOS;
            compiledMs = compiler.getTotalCompilationTime();
        }
    }

    private interface Work {
        void run(Times times) throws Exception;
    }

    /** Nanoseconds of single calls. */
    private static final class Times {
        private long[] nanos = new long[1 << 16];
        private int count;

        void add(long one) {
            if (count == nanos.length) {
                nanos = Arrays.copyOf(nanos, 2 * count);
            }
            nanos[count++] = one;
        }

        synchronized void add(Times other) {
            for (int i = 0; i < other.count; i++) {
                add(other.nanos[i]);
            }
        }

        Done done(long bytes) {
            Arrays.sort(nanos, 0, count);
            return new Done(count, bytes).with("p50", part(0.5)).with("p99", part(0.99)).with("p999", part(0.999));
        }

        private double part(double share) {
            return count == 0 ? 0 : nanos[Math.min(count - 1, (int) (share * count))] / 1e6;
        }
    }
}
