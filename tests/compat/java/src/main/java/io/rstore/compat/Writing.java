package io.rstore.compat;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.zip.CRC32;
import org.apache.rocketmq.store.DispatchRequest;

/** Opens a store to put messages into it, and leaves it closed or, with {@code --crash}, as a killed broker does. */
final class Writing {
    private Writing() {
    }

    /** What puts the messages. */
    interface Body {
        void put(Puts puts) throws Exception;
    }

    /** What is done with the store, still open, once all that was put is dispatched. */
    interface Then {
        void use(QuietStore store) throws Exception;
    }

    static int run(Args args, Lines out, Body body) throws Exception {
        return run(args, out, body, store -> { });
    }

    static int run(Args args, Lines out, Body body, Then then) throws Exception {
        Opening opening = new Opening(Path.of(args.word(0, "STORE")), args, out);
        int code = opening.run();
        if (code != Exit.OPENED) {
            return code;
        }
        QuietStore store = opening.store();
        if (args.has("bitmaps")) {
            store.getDispatcherList().addFirst(Writing::addBitmap);
        }
        body.put(new Puts(store, out));
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(10);
        }
        then.use(store);
        if (!args.has("crash")) {
            opening.close();
        }
        return Exit.OPENED;
    }

    /** Two of three messages get a filter bit map, as a broker with filters would compute one: here a made-up one. */
    private static void addBitmap(DispatchRequest request) {
        if (request.getConsumeQueueOffset() % 3 == 2) {
            return;
        }
        CRC32 crc = new CRC32();
        crc.update((request.getTopic() + request.getConsumeQueueOffset()).getBytes(StandardCharsets.UTF_8));
        request.setBitMap(ByteBuffer.allocate(8).putLong(crc.getValue() * 0x9E3779B97F4A7C15L).array());
    }
}
