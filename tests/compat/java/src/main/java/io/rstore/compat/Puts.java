package io.rstore.compat;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * Puts messages that are described by lines of a puts file. Besides what such a line has in the golden stores, it may
 * have {@code pauseMs} (wait that long first) and {@code preparedOf} (the {@code i} of an earlier put, whose offset
 * becomes this one's preparedTransactionOffset).
 */
final class Puts {
    private final DefaultMessageStore store;
    private final Lines out;
    private final Map<Integer, Long> offsets = new HashMap<>();

    Puts(DefaultMessageStore store, Lines out) {
        this.store = store;
        this.out = out;
    }

    /** Puts what one line describes, and prints a {@code put} line with its result. */
    void put(String line) throws Exception {
        JSONObject put = JSON.parseObject(line, Feature.OrderedField);
        Thread.sleep(put.getLongValue("pauseMs"));
        Integer prepared = put.getInteger("preparedOf");
        if (prepared != null) {
            put.put("preparedTransactionOffset", offsets.get(prepared));
        }
        PutMessageResult result = put.containsKey("inner") ? store.putMessages(batch(put)) : store.putMessage(one(put));
        AppendMessageResult append = result.getAppendMessageResult();
        Map<String, Object> printed = Lines.of("type", "put", "i", put.getInteger("i"),
            "preparedTransactionOffset", put.getLongValue("preparedTransactionOffset"),
            "status", result.getPutMessageStatus().name());
        if (append != null) {
            offsets.put(put.getInteger("i"), append.getWroteOffset());
            printed.putAll(Lines.of("appendStatus", append.getStatus().name(), "wroteOffset", append.getWroteOffset(),
                "wroteBytes", append.getWroteBytes(), "msgId", append.getMsgId(), "storeTimestamp",
                append.getStoreTimestamp(), "logicsOffset", append.getLogicsOffset(), "msgNum", append.getMsgNum()));
        }
        out.print(printed);
    }

    private static MessageExtBrokerInner one(JSONObject put) throws UnknownHostException {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fill(message, put);
        if (put.getIntValue("delayTimeLevel") > 0) {
            message.setDelayTimeLevel(put.getIntValue("delayTimeLevel"));
        }
        message.setPreparedTransactionOffset(put.getLongValue("preparedTransactionOffset"));
        message.setBody(body(put));
        String given = put.getString("propertiesString");
        message.setPropertiesString(given != null ? given
            : MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private static MessageExtBatch batch(JSONObject put) throws UnknownHostException {
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, put);
        List<Message> inner = new ArrayList<>();
        JSONArray described = put.getJSONArray("inner");
        for (int i = 0; i < described.size(); i++) {
            JSONObject each = described.getJSONObject(i);
            Message message = new Message();
            message.setTopic(put.getString("topic"));
            message.setFlag(each.getIntValue("flag"));
            message.setBody(body(each));
            MessageAccessor.setProperties(message, properties(each));
            inner.add(message);
        }
        batch.setBody(MessageDecoder.encodeMessages(inner));
        return batch;
    }

    private static void fill(MessageExt message, JSONObject put) throws UnknownHostException {
        message.setTopic(put.getString("topic"));
        message.setQueueId(put.getIntValue("queueId"));
        message.setFlag(put.getIntValue("flag"));
        message.setSysFlag(put.getIntValue("sysFlag"));
        message.setBornTimestamp(put.getLongValue("bornTimestamp"));
        message.setBornHost(host(put.getString("bornHost")));
        message.setStoreHost(host(put.getString("storeHost")));
        message.setReconsumeTimes(put.getIntValue("reconsumeTimes"));
        MessageAccessor.setProperties(message, properties(put));
        if (put.containsKey("waitStoreMsgOK") && !put.getBooleanValue("waitStoreMsgOK")) {
            message.setWaitStoreMsgOK(false);
        }
    }

    /** The properties in the order given: Apache writes them in the order of the map. */
    private static Map<String, String> properties(JSONObject put) {
        Map<String, String> properties = new LinkedHashMap<>();
        JSONObject given = put.getJSONObject("properties");
        if (given != null) {
            given.keySet().forEach(name -> properties.put(name, given.getString(name)));
        }
        return properties;
    }

    private static byte[] body(JSONObject put) {
        String body = put.getString("body");
        return body == null ? new byte[0] : Base64.getDecoder().decode(body);
    }

    private static InetSocketAddress host(String text) throws UnknownHostException {
        int bar = text.lastIndexOf('|');
        return new InetSocketAddress(InetAddress.getByName(text.substring(0, bar)),
            Integer.parseInt(text.substring(bar + 1)));
    }
}
