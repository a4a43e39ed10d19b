package io.rstore.compat;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** The consume queues of an open store, and the messages read through them. */
final class Queues {
    private static final String GROUP = "compat";

    /** What a broker gives a consumer that asks for no other number. */
    private static final int AT_ONCE = 32;

    private final DefaultMessageStore store;

    Queues(DefaultMessageStore store) {
        this.store = store;
    }

    /** Every queue, by topic and queue id. */
    List<ConsumeQueue> all() {
        List<ConsumeQueue> queues = new ArrayList<>();
        new TreeMap<>(store.getConsumeQueueTable()).values()
            .forEach(byId -> queues.addAll(new TreeMap<>(byId).values()));
        return queues;
    }

    /** Smallest and largest offset of every queue. */
    List<Map<String, Object>> summary() {
        return all().stream().map(Queues::summary).toList();
    }

    private static Map<String, Object> summary(ConsumeQueue queue) {
        return Lines.of("topic", queue.getTopic(), "queueId", queue.getQueueId(), "min", queue.getMinOffsetInQueue(),
            "max", queue.getMaxOffsetInQueue(), "maxPhysicOffset", queue.getMaxPhysicOffset());
    }

    /** Prints a {@code pulled} line for each message of one queue from an offset on, {@link #AT_ONCE} a time. */
    void pull(String topic, int queueId, long from, Lines out) {
        for (long offset = from;;) {
            GetMessageResult got = store.getMessage(GROUP, topic, queueId, offset, AT_ONCE, null);
            try {
                if (got.getStatus() != GetMessageStatus.FOUND) {
                    return;
                }
                got.getMessageBufferList().forEach(record -> out.print(Records.line("pulled", record)));
                offset = got.getNextBeginOffset();
            } finally {
                got.release();
            }
        }
    }

    /**
     * Prints a {@code holds} line for each queue: the queue offsets at which a message is got, and the physical offset
     * of each.
     */
    void printHeld(Lines out) {
        for (ConsumeQueue queue : all()) {
            List<Long> offsets = new ArrayList<>();
            List<Long> places = new ArrayList<>();
            long min = queue.getMinOffsetInQueue();
            long max = queue.getMaxOffsetInQueue();
            for (long offset = min; offset < max;) {
                GetMessageResult got = held(queue, offset);
                if (got == null) {
                    offset++;
                    continue;
                }
                offset = Math.max(got.getNextBeginOffset(), offset + 1);
                if (got.getStatus() == GetMessageStatus.FOUND) {
                    offsets.add(offset - 1);
                    places.add(Records.place(got.getMessageBufferList().get(0)));
                }
                got.release();
            }
            out.print("holds", "topic", queue.getTopic(), "queueId", queue.getQueueId(), "min", min, "max", max,
                "offsets", offsets, "places", places);
        }
    }

    /** What is got at an offset; null where Apache throws, at a unit that points nowhere. */
    private GetMessageResult held(ConsumeQueue queue, long offset) {
        try {
            return store.getMessage(GROUP, queue.getTopic(), queue.getQueueId(), offset, 1, null);
        } catch (RuntimeException e) {
            return null;
        }
    }

    /** Prints a {@code queue} line for each queue, and each message in it as a {@code msg} line. */
    void print(Lines out) {
        for (ConsumeQueue queue : all()) {
            out.print("queue", "topic", queue.getTopic(), "queueId", queue.getQueueId(), "min",
                queue.getMinOffsetInQueue(), "max", queue.getMaxOffsetInQueue(), "minLogicOffset",
                queue.getMinLogicOffset(), "maxPhysicOffset", queue.getMaxPhysicOffset());
            long offset = queue.getMinOffsetInQueue();
            while (offset < queue.getMaxOffsetInQueue()) {
                offset = printNext(queue, offset, out);
            }
        }
    }

    /** Asks for the message at an offset; what comes is its line, or a {@code getStatus} line. Gives the next offset. */
    private long printNext(ConsumeQueue queue, long offset, Lines out) {
        GetMessageResult got = store.getMessage(GROUP, queue.getTopic(), queue.getQueueId(), offset, 1, null);
        try {
            long next = Math.max(got.getNextBeginOffset(), offset + 1);
            if (got.getStatus() != GetMessageStatus.FOUND) {
                out.print("getStatus", "topic", queue.getTopic(), "queueId", queue.getQueueId(), "offset", offset,
                    "status", got.getStatus().name(), "nextBeginOffset", got.getNextBeginOffset());
                return next;
            }
            // Apache steps over units without a message: the one found is the last that it looked at
            long at = next - 1;
            if (at > offset) {
                out.print("getStatus", "topic", queue.getTopic(), "queueId", queue.getQueueId(), "offset", offset,
                    "status", "SKIPPED", "nextBeginOffset", at);
            }
            Map<String, Object> line = Records.line("msg", got.getMessageBufferList().get(0));
            addUnit(line, queue, at);
            out.print(line);
            return next;
        } finally {
            got.release();
        }
    }

    private static void addUnit(Map<String, Object> line, ConsumeQueue queue, long offset) {
        SelectMappedBufferResult unit = queue.getIndexBuffer(offset);
        try {
            ByteBuffer bytes = unit.getByteBuffer();
            line.put("cqPhyOffset", bytes.getLong());
            line.put("cqSize", bytes.getInt());
            long tagsCode = bytes.getLong();
            line.put("cqTagsCode", tagsCode);
            line.put("cqTopic", queue.getTopic());
            line.put("cqQueueId", queue.getQueueId());
            line.put("cqOffset", offset);
            ConsumeQueueExt.CqExtUnit ext = new ConsumeQueueExt.CqExtUnit();
            if (queue.isExtAddr(tagsCode) && queue.getExt(tagsCode, ext)) {
                byte[] bits = ext.getFilterBitMap();
                line.put("cqExt", Lines.of("size", ext.getSize(), "tagsCode", ext.getTagsCode(), "msgStoreTime",
                    ext.getMsgStoreTime(), "bitMap", bits == null ? null : HexFormat.of().formatHex(bits)));
            }
        } finally {
            unit.release();
        }
    }
}
