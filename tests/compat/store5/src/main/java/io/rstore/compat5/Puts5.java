package io.rstore.compat5;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
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
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/** Puts the messages of a puts file, as Puts.java does into 4.9.8's store, and prints a line of JSON for each put. */
final class Puts5 {
    private final DefaultMessageStore store;
    private final Map<Integer, Long> offsets = new HashMap<>();

    private Puts5(DefaultMessageStore store) {
        this.store = store;
    }

    static void putAll(DefaultMessageStore store, Path file) throws Exception {
        Puts5 puts = new Puts5(store);
        for (String line : Files.readAllLines(file)) {
            puts.put(JSON.parseObject(line, Feature.OrderedField));
        }
    }

    private void put(JSONObject put) throws UnknownHostException {
        Integer prepared = put.getInteger("preparedOf");
        if (prepared != null) {
            put.put("preparedTransactionOffset", offsets.get(prepared));
        }
        PutMessageResult result = put.containsKey("inner") ? store.putMessages(batch(put)) : store.putMessage(one(put));
        Map<String, Object> printed = new LinkedHashMap<>();
        printed.put("status", result.getPutMessageStatus().name());
        AppendMessageResult append = result.getAppendMessageResult();
        if (append != null) {
            offsets.put(put.getInteger("i"), append.getWroteOffset());
            printed.put("wroteOffset", append.getWroteOffset());
            printed.put("logicsOffset", append.getLogicsOffset());
            printed.put("msgId", append.getMsgId());
            printed.put("msgNum", append.getMsgNum());
            printed.put("storeTimestamp", append.getStoreTimestamp());
        }
        System.out.println(JSON.toJSONString(printed));
    }

    private static MessageExtBrokerInner one(JSONObject put) throws UnknownHostException {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fill(message, put);
        message.setPreparedTransactionOffset(put.getLongValue("preparedTransactionOffset"));
        message.setBody(body(put));
        message.setPropertiesString(put.getString("propertiesString"));
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
        if (!put.getBooleanValue("waitStoreMsgOK")) {
            message.setWaitStoreMsgOK(false);
        }
    }

    /** The properties in the order given: Apache writes them in the order of the map. */
    private static Map<String, String> properties(JSONObject put) {
        Map<String, String> properties = new LinkedHashMap<>();
        JSONObject given = put.getJSONObject("properties");
        given.keySet().forEach(name -> properties.put(name, given.getString(name)));
        return properties;
    }

    private static byte[] body(JSONObject put) {
        return Base64.getDecoder().decode(put.getString("body"));
    }

    private static InetSocketAddress host(String text) throws UnknownHostException {
        int bar = text.lastIndexOf('|');
        return new InetSocketAddress(InetAddress.getByName(text.substring(0, bar)),
            Integer.parseInt(text.substring(bar + 1)));
    }
}
