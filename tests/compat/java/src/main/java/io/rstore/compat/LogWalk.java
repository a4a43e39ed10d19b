package io.rstore.compat;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** All records of the log in its order, blanks too, through Apache's commit log. */
final class LogWalk {
    private static final int BLANK_MAGIC = 0xCBD43194;
    private static final int SMALLEST = 8;

    private final DefaultMessageStore store;

    LogWalk(DefaultMessageStore store) {
        this.store = store;
    }

    /** Prints a {@code log} or {@code blank} line for each record, and a {@code logStop} line if one can't be read. */
    void print(Lines out) {
        long at = start();
        while (at < store.getMaxPhyOffset()) {
            long offset = at;
            at = step(offset, record -> out.print(Records.line("log", record)),
                size -> out.print("blank", "physicalOffset", offset, "size", size));
            if (at == offset) {
                out.print("logStop", "physicalOffset", offset);
                return;
            }
        }
    }

    /** Hands on every readable message, prepared and rolled back ones included. */
    void messages(Consumer<MessageExt> each) {
        long at = start();
        for (long last = -1; at < store.getMaxPhyOffset() && at != last;) {
            last = at;
            at = step(at, record -> {
                MessageExt message = Records.decode(record);
                if (message != null) {
                    each.accept(message);
                }
            }, size -> { });
        }
    }

    private long start() {
        return Math.max(0, store.getMinPhyOffset());
    }

    /** Where the record after the one at {@code offset} starts; {@code offset} itself when there is none to read. */
    private long step(long offset, Consumer<ByteBuffer> record, Consumer<Integer> blank) {
        SelectMappedBufferResult rest = store.getCommitLog().getData(offset, false);
        if (rest == null) {
            return offset;
        }
        try {
            ByteBuffer bytes = rest.getByteBuffer().slice();
            if (bytes.remaining() < SMALLEST) {
                return offset;
            }
            int size = bytes.getInt(0);
            int magic = bytes.getInt(4);
            if (size < SMALLEST || size > bytes.remaining()) {
                return offset;
            }
            if (magic == BLANK_MAGIC) {
                blank.accept(size);
            } else if (magic == CommitLog.MESSAGE_MAGIC_CODE) {
                record.accept(bytes.limit(size));
            } else {
                return offset;
            }
            return offset + size;
        } finally {
            rest.release();
        }
    }
}
