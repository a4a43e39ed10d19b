package io.rstore.clients;

import com.alibaba.fastjson.JSON;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Clients that sign what they ask: sends, batches, consumes with retries, and is refused what it may not.
 * What it counted and was told is one line of JSON on stdout.
 */
public final class Secured {
    /** A client looks for the route of its retries each 30 s, and shares queues out each 20 s. */
    private static final long PATIENCE_MS = 150_000;

    private Secured() {
    }

    /** NAME-SERVICE COUNT ACCESS-KEY SECRET-KEY. */
    public static void main(String[] args) {
        try {
            System.out.println(JSON.toJSONString(run(args)));
            System.exit(0);
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1); // the clients' threads would go on
        }
    }

    private static Map<String, Object> run(String[] args) throws Exception {
        String names = args[0];
        int count = Integer.parseInt(args[1]);
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(args[2], args[3]));
        Map<String, Object> answer = new TreeMap<>();
        DefaultMQProducer producer = producer(names, "mine", hook);

        Set<String> seen = ConcurrentHashMap.newKeySet();
        Set<String> again = ConcurrentHashMap.newKeySet();
        AtomicInteger doubled = new AtomicInteger();
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer("readers", hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Allowed", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            for (MessageExt message : messages) {
                String body = new String(message.getBody());
                if (body.endsWith("00") && again.add(body)) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                if (!seen.add(body)) {
                    doubled.incrementAndGet();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message message = new Message("Allowed", Integer.toString(i).getBytes());
            if (i < count / 2) {
                producer.send(message);
                continue;
            }
            batch.add(message);
            if (batch.size() == 50 || i == count - 1) {
                producer.send(batch);
                batch.clear();
            }
        }
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (seen.size() < count && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
        answer.put("seen", seen.size());
        answer.put("doubled", doubled.get());
        answer.put("again", again.size());
        answer.put("denied", refusal(producer, "Denied"));
        answer.put("deniedBatch", refusal(producer, "Denied", "Denied"));
        RPCHook wrong = new AclClientRPCHook(new SessionCredentials(args[2], "another secret"));
        answer.put("wrongSecret", refusal(producer(names, "wrong", wrong), "Allowed"));
        RPCHook nobody = new AclClientRPCHook(new SessionCredentials("nobody", args[3]));
        answer.put("nobody", refusal(producer(names, "nobody", nobody), "Allowed"));
        answer.put("unsigned", refusal(producer(names, "unsigned", null), "Allowed"));
        return answer;
    }

    private static DefaultMQProducer producer(String names, String name, RPCHook hook) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producers-" + name, hook);
        producer.setInstanceName(name);
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        return producer;
    }

    /** What a broker says to a message, or to several at once; "" when it takes them. */
    private static String refusal(DefaultMQProducer producer, String... topics) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (String topic : topics) {
            messages.add(new Message(topic, "x".getBytes()));
        }
        try {
            if (messages.size() == 1) {
                producer.send(messages.get(0));
            } else {
                producer.send(messages);
            }
            return "";
        } catch (MQClientException e) { // it has tried again, and says what it was told last
            MQBrokerException last = (MQBrokerException) e.getCause();
            return last.getResponseCode() + " " + last.getErrorMessage();
        }
    }
}
