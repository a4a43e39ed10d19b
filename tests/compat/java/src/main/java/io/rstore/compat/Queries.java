package io.rstore.compat;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.index.QueryOffsetResult;

/** Messages looked up by key. */
final class Queries {
    /** More than Apache gives at once (its own limit, maxMsgsNumBatch, stays in force). */
    private static final int MOST = 1000;

    private final QuietStore store;

    Queries(QuietStore store) {
        this.store = store;
    }

    /** A topic and a key that is looked for in it. */
    record Key(String topic, String key) {
    }

    /** The lines {@code {"topic": …, "key": …}} of a file. */
    static Set<Key> from(Path file) throws IOException {
        Set<Key> keys = new LinkedHashSet<>();
        for (String line : Files.readAllLines(file)) {
            if (!line.isBlank()) {
                JSONObject query = JSON.parseObject(line);
                keys.add(new Key(query.getString("topic"), query.getString("key")));
            }
        }
        return keys;
    }

    /** Every unique key and key word of every record, in log order. */
    Set<Key> everyKey() {
        Set<Key> keys = new LinkedHashSet<>();
        new LogWalk(store).messages(message -> {
            String unique = message.getProperty("UNIQ_KEY");
            if (unique != null) {
                keys.add(new Key(message.getTopic(), unique));
            }
            if (message.getKeys() != null) {
                for (String word : message.getKeys().split(" ")) {
                    if (!word.isEmpty()) {
                        keys.add(new Key(message.getTopic(), word));
                    }
                }
            }
        });
        return keys;
    }

    /** The physical offsets of the messages with a key, as the public call gives them. */
    List<Long> offsets(Key key) {
        QueryMessageResult result = store.queryMessage(key.topic(), key.key(), MOST, 0, Long.MAX_VALUE);
        List<Long> offsets = new ArrayList<>();
        for (ByteBuffer record : result.getMessageBufferList()) {
            offsets.add(Records.place(record));
        }
        result.release();
        return offsets;
    }

    /** Prints one {@code query} line: offsets as the public call gives them, and in the order of the index's chain. */
    void print(Key key, Lines out) {
        QueryMessageResult result = store.queryMessage(key.topic(), key.key(), MOST, 0, Long.MAX_VALUE);
        List<Long> offsets = new ArrayList<>();
        for (ByteBuffer record : result.getMessageBufferList()) {
            offsets.add(record.getLong(MessageDecoder.MESSAGE_PHYSIC_OFFSET_POSTION));
        }
        result.release();
        QueryOffsetResult chain = store.index().queryOffset(key.topic(), key.key(), MOST, 0, Long.MAX_VALUE);
        out.print("query", "topic", key.topic(), "key", key.key(), "offsets", offsets, "rawIndexOrder",
            chain.getPhyOffsets(), "indexLastUpdateTimestamp", result.getIndexLastUpdateTimestamp(),
            "indexLastUpdatePhyoffset", result.getIndexLastUpdatePhyoffset());
    }
}
