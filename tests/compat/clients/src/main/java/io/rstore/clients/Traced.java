package io.rstore.clients;

import com.alibaba.fastjson.JSON;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Clients that write traces: sends to TOPIC and consumes it. The ids of the messages are one line of JSON; the clients
 * run until stdin ends, because one that is shut down drops the traces that it has not sent (AsyncTraceDispatcher.flush
 * waits for half a second).
 */
public final class Traced {
    private Traced() {
    }

    /** NAME-SERVICE COUNT TOPIC. */
    public static void main(String[] args) {
        try {
            System.out.println(JSON.toJSONString(run(args)));
            while (System.in.read() >= 0) {
                continue;
            }
            System.exit(0);
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1); // the clients' threads would go on
        }
    }

    private static Map<String, Object> run(String[] args) throws Exception {
        int count = Integer.parseInt(args[1]);
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQProducer producer = new DefaultMQProducer("JavaProducer", true);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        List<String> ids = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            ids.add(producer.send(new Message(args[2], "tag", "key-" + i, new byte[] {'x'})).getMsgId());
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("JavaConsumer", true);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(one -> left.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean all = left.await(60, TimeUnit.SECONDS);
        Map<String, Object> answer = new TreeMap<>();
        answer.put("all", all);
        answer.put("ids", ids);
        return answer;
    }
}
