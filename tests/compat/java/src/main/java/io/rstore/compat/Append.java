package io.rstore.compat;

import com.alibaba.fastjson.JSON;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/**
 * {@code Append STORE TOPIC QUEUE COUNT [sizes] [--set name=value]… [--sync-flush] [--crash] [--pull]}: puts COUNT
 * plain messages (body {@code append-N}, key {@code append-N}, tag {@code compat}), and prints the result of each.
 * {@code --pull}: gets what is in the queue from its former end on, as a broker does for a consumer, while it is open.
 */
public final class Append {
    private Append() {
    }

    public static void main(String[] argv) {
        Exit.with(argv, Append::run);
    }

    static int run(Args args, Lines out) throws Exception {
        String topic = args.word(1, "TOPIC");
        int queue = Integer.parseInt(args.word(2, "QUEUE"));
        int count = Integer.parseInt(args.word(3, "COUNT"));
        return Writing.run(args, out, puts -> {
            for (int i = 0; i < count; i++) {
                puts.put(line(topic, queue, i));
            }
        }, store -> {
            if (args.has("pull")) {
                new Queues(store).pull(topic, queue, store.getMaxOffsetInQueue(topic, queue) - count, out);
            }
        });
    }

    private static String line(String topic, int queue, int i) {
        String name = "append-" + i;
        byte[] body = name.getBytes(StandardCharsets.UTF_8);
        return JSON.toJSONString(Lines.of("i", i, "topic", topic, "queueId", queue, "bornTimestamp",
            System.currentTimeMillis(), "bornHost", "127.0.0.1|40000", "storeHost", "127.0.0.1|10911", "properties",
            Lines.of("KEYS", name, "TAGS", "compat"), "body", Base64.getEncoder().encodeToString(body)));
    }
}
