package io.rstore.compat;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * {@code Holds STORE --wanted FILE [sizes] [--set name=value]…}: opens a store, damaged as it may be, and prints in few
 * words which messages it gives: a {@code holds} line for each queue, one {@code places} line with those of the
 * wanted physical offsets at which a message is found, one {@code keys} line with what each wanted key finds, in the
 * order of the file. FILE is one object: {@code {"places": [N…], "keys": [[TOPIC, KEY]…]}}.
 */
public final class Holds {
    private Holds() {
    }

    public static void main(String[] argv) {
        Exit.with(argv, Holds::run);
    }

    static int run(Args args, Lines out) throws Exception {
        JSONObject wanted = JSON.parseObject(Files.readString(Path.of(args.option("wanted", ""))));
        Opening opening = new Opening(Path.of(args.word(0, "STORE")), args, out);
        int code = opening.run();
        if (code != Exit.OPENED) {
            return code;
        }
        QuietStore store = opening.store();
        new Queues(store).printHeld(out);
        out.print("places", "offsets", places(store, wanted.getJSONArray("places")));
        out.print("keys", "offsets", keys(new Queries(store), wanted.getJSONArray("keys")));
        opening.close();
        return Exit.OPENED;
    }

    private static List<Long> places(QuietStore store, JSONArray wanted) {
        List<Long> found = new ArrayList<>();
        for (int i = 0; i < wanted.size(); i++) {
            long offset = wanted.getLongValue(i);
            if (offset >= store.getMinPhyOffset() && offset < store.getMaxPhyOffset()) {
                MessageExt message = look(store, offset);
                if (message != null && message.getCommitLogOffset() == offset) {
                    found.add(offset);
                }
            }
        }
        return found;
    }

    /** The message at an offset; null where Apache throws: it takes any number for a length, and allocates as much. */
    private static MessageExt look(QuietStore store, long offset) {
        try {
            return store.lookMessageByOffset(offset);
        } catch (RuntimeException | OutOfMemoryError e) {
            return null;
        }
    }

    private static List<List<Long>> keys(Queries queries, JSONArray wanted) {
        List<List<Long>> found = new ArrayList<>();
        for (int i = 0; i < wanted.size(); i++) {
            JSONArray key = wanted.getJSONArray(i);
            found.add(offsets(queries, new Queries.Key(key.getString(0), key.getString(1))));
        }
        return found;
    }

    /** What a key finds; nothing where Apache throws. */
    private static List<Long> offsets(Queries queries, Queries.Key key) {
        try {
            return queries.offsets(key);
        } catch (RuntimeException | OutOfMemoryError e) {
            return List.of();
        }
    }
}
