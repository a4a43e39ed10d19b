package io.rstore.bench;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;

/** Puts messages like those of a workload, all into one queue; a new message object each, from a pool of contents. */
final class Puts {
    private final BenchStore store;
    private final Clock clock;
    private final int count;
    private final int callers;
    private final int batch;
    private final String topic;
    private final long born;
    private final SocketAddress host = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    private final List<byte[]> bodies = new ArrayList<>();
    private final List<Map<String, String>> properties = new ArrayList<>();

    Puts(BenchStore store, Options options, Clock clock) {
        this.store = store;
        this.clock = clock;
        count = options.number("count");
        callers = options.number("callers");
        batch = options.number("batch");
        topic = options.text("topic");
        born = options.big("born");
        Random random = new Random(1);
        for (int i = 0; i < options.number("pool"); i++) {
            byte[] body = new byte[options.number("body")];
            random.nextBytes(body);
            bodies.add(body);
            Map<String, String> named = new LinkedHashMap<>();
            named.put(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, String.format("%032X", random.nextLong()));
            named.put(MessageConst.PROPERTY_KEYS, String.format("k%09d", i));
            named.put(MessageConst.PROPERTY_TAGS, "TagA");
            properties.add(named);
        }
    }

    Done one() throws InterruptedException {
        clock.start();
        for (int i = 0; i < count; i++) {
            demand(store.putMessage(message(i)));
        }
        clock.stop();
        return dispatched();
    }

    Done batches() throws InterruptedException {
        List<byte[]> encoded = new ArrayList<>();
        for (int first = 0; first < bodies.size(); first += batch) {
            List<Message> inner = new ArrayList<>();
            for (int i = first; i < first + batch; i++) {
                Message message = new Message(topic, bodies.get(i));
                MessageAccessor.setProperties(message, properties.get(i));
                inner.add(message);
            }
            encoded.add(MessageDecoder.encodeMessages(inner));
        }
        clock.start();
        for (int i = 0; i < count / batch; i++) {
            MessageExtBatch message = new MessageExtBatch();
            fill(message, 0);
            message.setBody(encoded.get(i % encoded.size()));
            demand(store.putMessages(message));
        }
        clock.stop();
        return dispatched();
    }

    Done byCallers() throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        Throwable[] failed = new Throwable[1];
        for (int caller = 0; caller < callers; caller++) {
            int first = caller;
            Thread thread = new Thread(() -> {
                for (int i = first; i < count; i += callers) {
                    demand(store.putMessage(message(i)));
                }
            });
            thread.setUncaughtExceptionHandler((where, error) -> failed[0] = error);
            threads.add(thread);
        }
        clock.start();
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        clock.stop();
        if (failed[0] != null) {
            throw new IllegalStateException(failed[0]);
        }
        return new Done(count, 0);
    }

    private MessageExtBrokerInner message(int number) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fill(message, number);
        message.setBody(bodies.get(number % bodies.size()));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private void fill(MessageExt message, int number) {
        message.setTopic(topic);
        message.setQueueId(0);
        message.setBornTimestamp(born);
        message.setBornHost(host);
        message.setStoreHost(host);
        MessageAccessor.setProperties(message, properties.get(number % properties.size()));
    }

    private static void demand(PutMessageResult result) {
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException("a put was answered " + result.getPutMessageStatus());
        }
    }

    /** With the seconds until all of it can be got and queried, too. */
    private Done dispatched() throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        return new Done(count, 0).with("dispatchedSeconds", clock.sofar());
    }
}
