package io.rstore.bench.kafka;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;

/**
 * {@code FillKafka root=DIRECTORY messages=COUNT body=BYTES}: a segment of a Kafka log with so many messages, appended by
 * Kafka's own {@code LogSegment} in batches of a producer's default size, as a broker does it. A message has a body of
 * random bytes, its key, and as headers what RocketMQ's properties hold beside it: the unique key and the tag.
 */
public final class FillKafka {
    private static final int BATCH = 16 << 10; // a producer's batch.size
    private static final int BESIDE_BODY = 100; // of a record, roughly
    private static final int POOL = 4 << 20;
    private static final int STEP = 7919;
    private static final long MIX = 2654435761L;
    private final Map<String, String> options = new LinkedHashMap<>();
    private final byte[] pool = new byte[POOL];

    private FillKafka(String[] words) {
        for (String word : words) {
            int equals = word.indexOf('=');
            options.put(word.substring(0, equals), word.substring(equals + 1));
        }
        new Random(1).nextBytes(pool);
    }

    public static void main(String[] words) throws Exception {
        new FillKafka(words).run();
    }

    private void run() throws Exception {
        long began = System.nanoTime();
        long messages = Long.parseLong(options.get("messages"));
        int body = Integer.parseInt(options.get("body"));
        int batch = Math.max(1, BATCH / (body + BESIDE_BODY));
        Path root = Files.createDirectories(Path.of(options.get("root")));
        long size;
        try (LogSegment segment = LogSegment.open(root.toFile(), 0, new LogConfig(new Properties()), Time.SYSTEM, 0, false)) {
            ByteBuffer buffer = ByteBuffer.allocate(batch * (body + BESIDE_BODY) * 2);
            for (long first = 0; first < messages; first += batch) {
                append(segment, buffer.clear(), first, Math.min(messages, first + batch), body);
            }
            segment.flush();
            size = segment.log().sizeInBytes();
        }
        System.out.println(String.format(Locale.ROOT, "{\"seconds\": %.6f, \"messages\": %d, \"bytes\": %d}",
            (System.nanoTime() - began) / 1e9, messages, size));
    }

    private void append(LogSegment segment, ByteBuffer buffer, long first, long end, int body) throws Exception {
        long now = System.currentTimeMillis();
        MemoryRecordsBuilder builder = MemoryRecords.builder(buffer, Compression.NONE, TimestampType.CREATE_TIME, first);
        for (long number = first; number < end; number++) {
            builder.append(now, ascii(String.format("k%09d", number)), value(number, body), new Header[] {
                new RecordHeader("UNIQ_KEY", ascii(String.format("%016X%016X", number * MIX, number))),
                new RecordHeader("TAGS", ascii("TagA")),
            });
        }
        segment.append(end - 1, builder.build());
    }

    private byte[] value(long number, int body) {
        byte[] bytes = new byte[body];
        System.arraycopy(pool, (int) (number * STEP % (POOL - body)), bytes, 0, body);
        return bytes;
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }
}
