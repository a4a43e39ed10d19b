package io.rstore.clients;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** One consumer of a group; ends, as one that is shut down, with its stdin. */
public final class Member {
    private Member() {
    }

    /**
     * NAME-SERVICE GROUP TOPIC FILE concurrent|ordered|pop. FILE: a line a message, written before it counts as consumed.
     * pop: the broker shares the queues out (a client of RocketMQ 5); messages fail* (a batch is one message), fail at first.
     */
    public static void main(String[] args) throws Exception {
        OutputStream file = Files.newOutputStream(Path.of(args[3]), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setPollNameServerInterval(2000);
        consumer.setHeartbeatBrokerInterval(2000);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        if (args[4].equals("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                note(file, messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else if (args[4].equals("pop")) {
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                note(file, messages);
                MessageExt one = messages.get(0);
                boolean fails = new String(one.getBody(), StandardCharsets.UTF_8).startsWith("fail") && one.getReconsumeTimes() == 0;
                return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                note(file, messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        System.out.println("started");
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
        System.exit(0);
    }

    private static void note(OutputStream file, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            Instant now = Instant.now();
            String line = now.getEpochSecond() + String.format("%09d", now.getNano()) + " " + message.getQueueId() + " "
                + message.getQueueOffset() + " " + new String(message.getBody(), StandardCharsets.UTF_8) + "\n";
            synchronized (file) {
                try {
                    file.write(line.getBytes(StandardCharsets.UTF_8));
                } catch (IOException error) {
                    throw new IllegalStateException(error);
                }
            }
        }
    }
}
