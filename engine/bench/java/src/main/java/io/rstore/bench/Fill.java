package io.rstore.bench;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.PutMessageStatus;

/**
 * Fills a store with a workload's messages, a batch to each queue in turn, until another round would not fit into
 * {@code bytes} of log. The process then ends by {@code halt}, as a killed broker's: what is on disk is what it leaves.
 * Message {@code n} lies in queue {@code n % queues}; its keys are those of the workload (engine/bench/workload.py).
 */
final class Fill {
    private static final int QUEUES_PER_TOPIC = 4;
    private static final int POOL = 4 << 20;
    private static final int STEP = 7919;
    private static final long MIX = 2654435761L;
    private static final int BESIDE_BODY = 400; // of a record, roughly
    private static final int LARGEST_BATCH = 2 << 20; // half of maxMessageSize
    private static final int ROUNDS = 8; // at least
    private final BenchStore store;
    private final Clock clock;
    private final int queues;
    private final int size;
    private final int batch;
    private final long bytes;
    private final byte[] pool = new byte[POOL];
    private final SocketAddress host = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);

    Fill(BenchStore store, Options options, Clock clock) {
        this.store = store;
        this.clock = clock;
        queues = options.number("queues");
        size = options.number("body");
        bytes = options.big("bytes");
        long record = size + BESIDE_BODY;
        batch = (int) Math.max(1, Math.min(256, Math.min(LARGEST_BATCH / record, bytes / ROUNDS / queues / record)));
        new Random(1).nextBytes(pool);
    }

    Done run() throws InterruptedException {
        clock.start();
        long number = 0;
        long round = (long) queues * batch * (size + BESIDE_BODY);
        while (store.getMaxPhyOffset() + round + round / 16 < bytes) {
            long before = store.getMaxPhyOffset();
            for (int queue = 0; queue < queues; queue++) {
                put(queue, number + queue);
            }
            number += (long) queues * batch;
            round = store.getMaxPhyOffset() - before;
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        clock.stop();
        String topic = topic(0);
        long last = store.getMaxOffsetInQueue(topic, 0) - 1;
        return new Done(number, store.getMaxPhyOffset())
            .with("firstMs", (double) store.getMessageStoreTimeStamp(topic, 0, 0))
            .with("lastMs", (double) store.getMessageStoreTimeStamp(topic, 0, last));
    }

    private void put(int queue, long first) {
        List<Message> inner = new ArrayList<>(batch);
        for (int i = 0; i < batch; i++) {
            inner.add(message(queue, first + (long) i * queues));
        }
        MessageExtBatch message = new MessageExtBatch();
        message.setTopic(topic(queue));
        message.setQueueId(queue % QUEUES_PER_TOPIC);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(host);
        message.setStoreHost(host);
        message.setBody(MessageDecoder.encodeMessages(inner));
        PutMessageStatus status = store.putMessages(message).getPutMessageStatus();
        if (status != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException("a put was answered " + status);
        }
    }

    private Message message(int queue, long number) {
        byte[] body = new byte[size];
        System.arraycopy(pool, (int) (number * STEP % (POOL - size)), body, 0, size);
        Message message = new Message(topic(queue), body);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
            String.format("%016X%016X", number * MIX, number));
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_KEYS, String.format("k%09d", number));
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_TAGS, "TagA");
        return message;
    }

    private static String topic(int queue) {
        return String.format("BenchTopic%05d", queue / QUEUES_PER_TOPIC);
    }
}
