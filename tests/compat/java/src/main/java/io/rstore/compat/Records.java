package io.rstore.compat;

import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.CommitLog;

/** Stored records as Apache's decoder reads them. */
final class Records {
    private static final int BODY_LENGTH_AT = 84;
    private static final int MORE_FOR_IPV6 = 12;

    private Records() {
    }

    /** Decodes one record, its body as stored (not decompressed); null when Apache's decoder gives up. */
    static MessageExt decode(ByteBuffer record) {
        return MessageDecoder.decode(record.duplicate(), true, false);
    }

    /** The fields of one record as a line of the given type; only {@code decoded: false} when it can't be read. */
    static Map<String, Object> line(String type, ByteBuffer record) {
        ByteBuffer bytes = record.slice();
        MessageExt message = decode(bytes);
        if (message == null) {
            return Lines.of("type", type, "decoded", false);
        }
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        Map<String, String> properties = message.getProperties();
        return Lines.of(
            "type", type,
            "queueOffset", message.getQueueOffset(),
            "physicalOffset", message.getCommitLogOffset(),
            "size", message.getStoreSize(),
            "bodyCRC", message.getBodyCRC(),
            "topic", message.getTopic(),
            "queueId", message.getQueueId(),
            "tags", message.getTags(),
            "keys", message.getKeys(),
            "msgId", message.getMsgId(),
            "uniqKey", message.getProperty("UNIQ_KEY"),
            "sysFlag", message.getSysFlag(),
            "flag", message.getFlag(),
            "bornTimestamp", message.getBornTimestamp(),
            "bornHost", host(message.getBornHost()),
            "storeTimestamp", message.getStoreTimestamp(),
            "storeHost", host(message.getStoreHost()),
            "reconsumeTimes", message.getReconsumeTimes(),
            "preparedTransactionOffset", message.getPreparedTransactionOffset(),
            "bodyLen", body.length,
            "bodyMd5", md5(body),
            "propertiesString", propertiesString(bytes),
            "properties", properties == null ? Map.of() : new TreeMap<>(properties));
    }

    /**
     * The physical offset that a record names; -1 for what is none: too short (a damaged unit gives anything), or with
     * another magic (an index entry of a lost message may lead to a blank).
     */
    static long place(ByteBuffer record) {
        int at = MessageDecoder.MESSAGE_PHYSIC_OFFSET_POSTION;
        if (record.remaining() < at + Long.BYTES
            || record.getInt(record.position() + Integer.BYTES) != CommitLog.MESSAGE_MAGIC_CODE) {
            return -1;
        }
        return record.getLong(record.position() + at);
    }

    /** {@code ip|port}, the form that the puts files use too. */
    static String host(SocketAddress address) {
        InetSocketAddress inet = (InetSocketAddress) address;
        return inet.getAddress().getHostAddress() + "|" + inet.getPort();
    }

    /** The properties exactly as stored: Apache's decoder gives a map only. */
    private static String propertiesString(ByteBuffer record) {
        int sysFlag = record.getInt(MessageDecoder.SYSFLAG_POSITION);
        int at = BODY_LENGTH_AT;
        at += (sysFlag & MessageSysFlag.BORNHOST_V6_FLAG) == 0 ? 0 : MORE_FOR_IPV6;
        at += (sysFlag & MessageSysFlag.STOREHOSTADDRESS_V6_FLAG) == 0 ? 0 : MORE_FOR_IPV6;
        at += 4 + record.getInt(at);
        at += 1 + record.get(at);
        byte[] properties = new byte[record.getShort(at)];
        record.get(at + 2, properties);
        return new String(properties, StandardCharsets.UTF_8);
    }

    static String md5(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("MD5").digest(bytes));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
