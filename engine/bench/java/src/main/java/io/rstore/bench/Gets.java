package io.rstore.bench;

import java.nio.ByteBuffer;
import java.util.Random;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;

/** Reads from a workload's store. */
final class Gets {
    private static final int QUEUES_PER_TOPIC = 4;
    private final BenchStore store;
    private final Options options;
    private final Clock clock;
    private final int count;
    private final int queues;
    private final int pull;

    Gets(BenchStore store, Options options, Clock clock) {
        this.store = store;
        this.options = options;
        this.clock = clock;
        count = options.number("count");
        queues = options.number("queues");
        pull = options.number("pull");
    }

    /** Queue after queue, in order; {@code decoded}: each record becomes an object. */
    Done sequential(boolean decoded) {
        clock.start();
        long found = 0;
        long bytes = 0;
        for (int queue = 0; queue < queues && found < count; queue++) {
            long offset = 0;
            while (found < count) {
                GetMessageResult result = store.getMessage("bench", topic(queue), queue % QUEUES_PER_TOPIC, offset, pull, null);
                if (result.getStatus() != GetMessageStatus.FOUND) {
                    result.release();
                    break;
                }
                found += result.getMessageCount();
                bytes += result.getBufferTotalSize();
                if (decoded) {
                    decode(result);
                }
                offset = result.getNextBeginOffset();
                result.release();
            }
        }
        clock.stop();
        return new Done(found, bytes);
    }

    private static void decode(GetMessageResult result) {
        for (ByteBuffer record : result.getMessageBufferList()) {
            MessageExt message = MessageDecoder.decode(record, true, false);
            if (message == null) {
                throw new IllegalStateException("a record that can't be decoded");
            }
        }
    }

    Done query() {
        long messages = options.big("messages");
        Random random = new Random(1);
        String[] topics = new String[count];
        String[] keys = new String[count];
        for (int i = 0; i < count; i++) {
            long number = (long) (random.nextDouble() * messages);
            topics[i] = topic((int) (number % queues));
            keys[i] = String.format("k%09d", number);
        }
        clock.start();
        for (int i = 0; i < count; i++) {
            QueryMessageResult result = store.queryMessage(topics[i], keys[i], 32, 0, Long.MAX_VALUE);
            if (result.getMessageBufferList().isEmpty()) { // other keys with the same hash may be among them
                throw new IllegalStateException(keys[i] + " is not found");
            }
            result.release();
        }
        clock.stop();
        return new Done(count, 0);
    }

    Done byTime() {
        long last = Math.max(1, options.big("messages") / options.big("perMs"));
        Random random = new Random(2);
        int[] queue = new int[count];
        long[] time = new long[count];
        for (int i = 0; i < count; i++) {
            queue[i] = random.nextInt(queues);
            time[i] = options.big("born") + (long) (random.nextDouble() * last);
        }
        clock.start();
        for (int i = 0; i < count; i++) {
            int id = queue[i] % QUEUES_PER_TOPIC;
            long offset = store.getOffsetInQueueByTime(topic(queue[i]), id, time[i]);
            store.getMessage("bench", topic(queue[i]), id, offset, pull, null).release();
        }
        clock.stop();
        return new Done(count, 0);
    }

    private static String topic(int queue) {
        return String.format("BenchTopic%05d", queue / QUEUES_PER_TOPIC);
    }
}
