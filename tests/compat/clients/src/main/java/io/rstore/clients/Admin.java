package io.rstore.clients;

import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Many mqadmin commands, and the clients that they look at, in one process: a JSON list of words a line on stdin, what the
 * command printed as a JSON string a line on stdout. Words of its own: !consume GROUP TOPIC, !seen GROUP,
 * !produce GROUP TOPIC COUNT.
 */
public final class Admin {
    private static final Map<String, AtomicInteger> SEEN = new ConcurrentHashMap<>();
    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();

    private Admin() {
    }

    /** NAME-SERVICE. */
    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> words = JSON.parseArray(line, String.class);
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream into = new PrintStream(said, true);
            System.setOut(into);
            System.setErr(into);
            try {
                if (words.get(0).startsWith("!")) {
                    into.print(own(args[0], words));
                } else {
                    MQAdminStartup.main0(words.toArray(new String[0]), null);
                }
            } catch (Exception e) {
                e.printStackTrace(into);
            }
            answers.println(JSON.toJSONString(said.toString()));
            answers.flush();
        }
        System.exit(0);
    }

    private static String own(String names, List<String> words) throws Exception {
        String group = words.get(1);
        switch (words.get(0)) {
            case "!consume": return consume(names, group, words.get(2));
            case "!seen": return "" + SEEN.get(group).get();
            case "!produce": return produce(names, group, words.get(2), Integer.parseInt(words.get(3)));
            default: throw new IllegalArgumentException(words.get(0));
        }
    }

    /** Starts a consumer that stays; its client id. */
    private static String consume(String names, String group, String topic) throws Exception {
        AtomicInteger seen = new AtomicInteger();
        SEEN.put(group, seen);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            seen.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
    }

    /** Sends with a producer that stays; of each message its id in the log and its own. */
    private static String produce(String names, String group, String topic, int count) throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(group);
        if (producer == null) {
            producer = new DefaultMQProducer(group);
            producer.setNamesrvAddr(names);
            producer.setInstanceName(group);
            producer.setSendMsgTimeout(30_000); // a send that is tried again could be stored twice
            producer.start();
            PRODUCERS.put(group, producer);
        }
        StringBuilder ids = new StringBuilder();
        for (int i = 0; i < count; i++) {
            SendResult sent = producer.send(new Message(topic, "tag", "key" + i, ("body " + i).getBytes()));
            ids.append(sent.getOffsetMsgId()).append(' ').append(sent.getMsgId()).append('\n');
        }
        return ids.toString();
    }
}
