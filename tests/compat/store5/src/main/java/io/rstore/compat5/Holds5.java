package io.rstore.compat5;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.store.timer.Slot;
import org.apache.rocketmq.store.timer.TimerCheckpoint;
import org.apache.rocketmq.store.timer.TimerMessageStore;
import org.apache.rocketmq.store.timer.TimerMetrics;

/**
 * Which messages a store gives, in few words: by queue, at the wanted physical offsets, by the wanted keys; and where a
 * timer log lies in it, which of them its timer has in the wheel.
 *
 * <p>The wanted ones are lines of a file: {@code place N} and {@code key TOPIC KEY}, by tabs.
 */
final class Holds5 {
    private static final int MOST = 1000;
    private static final int WEEKS_MS = 14 * 24 * 3600 * 1000;

    private Holds5() {
    }

    /** Members of a JSON object, with a comma before the first. */
    static String members(DefaultMessageStore store, Path root, Path wanted) throws IOException {
        List<String> places = new ArrayList<>();
        List<String> keys = new ArrayList<>();
        for (String line : Files.readAllLines(wanted)) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("place")) {
                if (isThere(store, Long.parseLong(words[1]))) {
                    places.add(words[1]);
                }
            } else {
                keys.add("[" + String.join(",", offsets(store, words[1], words[2])) + "]");
            }
        }
        String timer = Files.isDirectory(root.resolve("timerlog")) ? timer(store, root) : "null";
        return ", \"holds\": [" + String.join(", ", queues(store)) + "], \"places\": [" + String.join(",", places)
            + "], \"keys\": [" + String.join(",", keys) + "], \"timer\": " + timer;
    }

    private static boolean isThere(DefaultMessageStore store, long offset) {
        if (offset < store.getMinPhyOffset() || offset >= store.getMaxPhyOffset()) {
            return false;
        }
        try {
            MessageExt message = store.lookMessageByOffset(offset);
            return message != null && message.getCommitLogOffset() == offset;
        } catch (RuntimeException | OutOfMemoryError e) {
            return false;
        }
    }

    private static List<String> offsets(DefaultMessageStore store, String topic, String key) {
        List<String> found = new ArrayList<>();
        try {
            QueryMessageResult result = store.queryMessage(topic, key, MOST, 0, Long.MAX_VALUE);
            for (ByteBuffer record : result.getMessageBufferList()) {
                if (!isMessage(record)) {
                    continue; // by an entry of a lost message: bytes of an inert record or a blank, no client takes them
                }
                found.add("" + record.getLong(record.position() + MessageDecoder.MESSAGE_PHYSIC_OFFSET_POSITION));
            }
            result.release();
        } catch (RuntimeException | OutOfMemoryError e) {
            found.clear();
        }
        return found;
    }

    private static boolean isMessage(ByteBuffer record) {
        if (record.remaining() < MessageDecoder.MESSAGE_PHYSIC_OFFSET_POSITION + Long.BYTES) {
            return false;
        }
        int magic = record.getInt(record.position() + Integer.BYTES);
        return magic == MessageDecoder.MESSAGE_MAGIC_CODE || magic == MessageDecoder.MESSAGE_MAGIC_CODE_V2;
    }

    private static List<String> queues(DefaultMessageStore store) {
        List<String> lines = new ArrayList<>();
        for (ConcurrentMap<Integer, ConsumeQueueInterface> queues : store.getConsumeQueueTable().values()) {
            for (ConsumeQueueInterface queue : queues.values()) {
                lines.add(held(store, queue));
            }
        }
        return lines;
    }

    /** Each queue offset that gives a record, and where that lies; a batch has it for each of its messages. */
    private static String held(DefaultMessageStore store, ConsumeQueueInterface queue) {
        boolean batches = queue.getCQType().toString().equals("BatchCQ");
        List<String> offsets = new ArrayList<>();
        List<String> places = new ArrayList<>();
        for (long at = queue.getMinOffsetInQueue(); at < queue.getMaxOffsetInQueue();) {
            GetMessageResult got;
            try {
                got = store.getMessage("G", queue.getTopic(), queue.getQueueId(), at, 1, null);
            } catch (RuntimeException e) {
                at++;
                continue;
            }
            long next = Math.max(got.getNextBeginOffset(), at + 1);
            if (got.getStatus() == GetMessageStatus.FOUND) {
                ByteBuffer record = got.getMessageBufferList().get(0);
                long place = record.getLong(record.position() + MessageDecoder.MESSAGE_PHYSIC_OFFSET_POSITION);
                for (long offset = batches ? at : next - 1; offset < next; offset++) {
                    offsets.add("" + offset);
                    places.add("" + place);
                }
            }
            got.release();
            at = next;
        }
        return "{\"type\": \"holds\", \"topic\": " + Starts5.quoted(queue.getTopic()) + ", \"queueId\": " + queue.getQueueId()
            + ", \"offsets\": [" + String.join(",", offsets) + "], \"places\": [" + String.join(",", places) + "]}";
    }

    /** Physical offsets of the messages in the wheel, from its time on, and the queue offset that it reads next. */
    private static String timer(DefaultMessageStore store, Path root) throws IOException {
        TimerCheckpoint check = new TimerCheckpoint(root.resolve("config/timercheck").toString());
        TimerMessageStore timer = new TimerMessageStore(store, store.getMessageStoreConfig(), check,
            new TimerMetrics(root.resolve("config/timermetrics").toString()), new BrokerStatsManager("compat", true));
        if (!timer.load()) {
            return "{\"loaded\": false}";
        }
        List<String> places = new ArrayList<>();
        int precision = store.getMessageStoreConfig().getTimerPrecisionMs();
        long from = timer.getCurrReadTimeMs() / precision * precision;
        for (long due = from; due < from + WEEKS_MS; due += precision) {
            Slot slot = timer.getTimerWheel().getSlot(due);
            long at = slot.timeMs == -1 ? -1 : slot.lastPos;
            for (int steps = 0; at != -1 && steps < MOST; steps++) {
                SelectMappedBufferResult unit = timer.getTimerLog().getTimerMessage(at);
                if (unit == null) {
                    break;
                }
                at = unit.getByteBuffer().getLong(4);
                places.add("" + unit.getByteBuffer().getLong(28));
                unit.release();
            }
        }
        return "{\"loaded\": true, \"queueOffset\": " + timer.getQueueOffset() + ", \"places\": ["
            + String.join(",", places) + "]}";
    }
}
