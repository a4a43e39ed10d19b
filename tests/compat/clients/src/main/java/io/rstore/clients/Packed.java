package io.rstore.clients;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Compressed bodies: sends one of each type to TOPIC, "java TYPE" some thousand times, and consumes COUNT messages of it,
 * its own ones among them. What they begin with is one line of JSON, sorted. Runs with the clients of 4.9.8 and of 5: the
 * type is given by the system property that both read, and the line is made without a library of theirs.
 */
public final class Packed {
    private static final int TIMES = 2000;

    private Packed() {
    }

    /** NAME-SERVICE TOPIC COUNT. */
    public static void main(String[] args) {
        try {
            System.out.println(run(args[0], args[1], Integer.parseInt(args[2])));
            System.exit(0);
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1); // the clients' threads would go on
        }
    }

    private static String run(String names, String topic, int count) throws Exception {
        for (String type : new String[] {"ZLIB", "LZ4", "ZSTD"}) {
            System.setProperty("rocketmq.message.compressType", type);
            DefaultMQProducer producer = new DefaultMQProducer("Packs" + type);
            producer.setNamesrvAddr(names);
            producer.setSendMsgTimeout(30_000);
            producer.start();
            byte[] body = String.join("", Collections.nCopies(TIMES, "java " + type)).getBytes(StandardCharsets.UTF_8);
            producer.send(new Message(topic, "", "packed", body));
            producer.shutdown();
        }
        List<String> bodies = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("Unpacks");
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(one -> {
                bodies.add(new String(one.getBody(), StandardCharsets.UTF_8));
                left.countDown();
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean all = left.await(60, TimeUnit.SECONDS);
        consumer.shutdown();
        List<String> told = new ArrayList<>();
        for (String body : new TreeSet<>(bodies)) {
            String word = body.substring(0, body.length() / TIMES);
            told.add(body.equals(String.join("", Collections.nCopies(TIMES, word))) ? word : "damaged");
        }
        return "{\"all\": " + all + ", \"bodies\": [\"" + String.join("\", \"", told) + "\"]}";
    }
}
