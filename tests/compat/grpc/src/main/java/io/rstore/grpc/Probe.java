package io.rstore.grpc;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** What clients of RocketMQ 5 do by way of the proxy: a line for each thing that was seen, `WHAT VALUE`. */
public final class Probe {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private final ClientConfiguration configuration;
    private final Map<String, String> seen = Collections.synchronizedMap(new LinkedHashMap<>());

    private Probe(String endpoints) {
        configuration = ClientConfiguration.newBuilder().setEndpoints(endpoints).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(60)).build();
    }

    private interface Work {
        String run() throws Exception;
    }

    /** ENDPOINTS. */
    public static void main(String[] args) throws Exception {
        Probe probe = new Probe(args[0]);
        List<Thread> threads = new ArrayList<>();
        Map<String, Work> parts = new LinkedHashMap<>();
        parts.put("simple", probe::simple);
        parts.put("push", probe::push);
        parts.put("delay", probe::delay);
        parts.put("fifo", probe::fifo);
        parts.put("fifoPush", probe::fifoPush);
        parts.put("transaction", probe::transaction);
        parts.put("recall", probe::recall);
        parts.put("wrongType", probe::wrongType);
        for (Map.Entry<String, Work> part : parts.entrySet()) {
            Thread thread = new Thread(() -> {
                String outcome;
                try {
                    outcome = part.getValue().run();
                } catch (Throwable error) {
                    outcome = "failed: " + error;
                }
                probe.seen.put(part.getKey(), outcome);
            });
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }
        long until = System.currentTimeMillis() + 200_000;
        for (Thread thread : threads) {
            thread.join(Math.max(1, until - System.currentTimeMillis()));
        }
        probe.seen.forEach((what, value) -> System.out.println(what + " " + value.replace('\n', ' ')));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private Producer producer(String... topics) throws Exception {
        return PROVIDER.newProducerBuilder().setTopics(topics).setClientConfiguration(configuration).build();
    }

    private SimpleConsumer consumer(String topic) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup("G-" + topic)
            .setAwaitDuration(Duration.ofSeconds(2))
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build();
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setTag("tag").setKeys("key-" + body)
            .setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(MessageView message) {
        ByteBuffer body = message.getBody();
        return StandardCharsets.UTF_8.decode(body).toString();
    }

    /** Messages until so many are there, or the time is over. */
    private static List<MessageView> receive(SimpleConsumer consumer, int count, int seconds) throws Exception {
        List<MessageView> all = new ArrayList<>();
        long until = System.currentTimeMillis() + seconds * 1000L;
        while (all.size() < count && System.currentTimeMillis() < until) {
            all.addAll(consumer.receive(16, Duration.ofSeconds(60)));
        }
        return all;
    }

    private static List<String> bodies(List<MessageView> messages) {
        List<String> all = new ArrayList<>();
        messages.forEach(one -> all.add(text(one) + "/" + one.getDeliveryAttempt()));
        Collections.sort(all);
        return all;
    }

    /** Sends, receives, acknowledges, changes one's time: it comes again, the others do not. */
    private String simple() throws Exception {
        Producer producer = producer("Simple");
        for (int i = 0; i < 4; i++) {
            producer.send(message("Simple", "s" + i).addProperty("number", "" + i).build());
        }
        SimpleConsumer consumer = consumer("Simple");
        List<MessageView> first = receive(consumer, 4, 60);
        String properties = first.isEmpty() ? "" : first.get(0).getProperties().keySet() + " " + first.get(0).getTag() + first.get(0).getKeys().size();
        for (MessageView one : first) {
            if (text(one).equals("s3")) {
                consumer.changeInvisibleDuration(one, Duration.ofSeconds(2));
            } else {
                consumer.ack(one);
            }
        }
        List<MessageView> again = receive(consumer, 1, 60);
        for (MessageView one : again) {
            consumer.ack(one);
        }
        return bodies(first) + " " + properties + " again " + bodies(again);
    }

    /** A push consumer; one message fails at first. */
    private String push() throws Exception {
        Producer producer = producer("Push");
        BlockingQueue<String> got = new LinkedBlockingQueue<>();
        PushConsumer consumer = push("Push", got);
        for (int i = 0; i < 4; i++) {
            producer.send(message("Push", (i == 2 ? "fail" : "p") + i).build());
        }
        List<String> all = poll(got, 5, 60);
        consumer.close();
        Collections.sort(all);
        return all.toString();
    }

    private PushConsumer push(String topic, BlockingQueue<String> got) throws Exception {
        return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup("G-" + topic)
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(one -> {
                String body = text(one);
                got.add(body + "/" + one.getDeliveryAttempt());
                return body.startsWith("fail") && one.getDeliveryAttempt() == 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
    }

    private static List<String> poll(BlockingQueue<String> got, int count, int seconds) throws Exception {
        List<String> all = new ArrayList<>();
        long until = System.currentTimeMillis() + seconds * 1000L;
        while (all.size() < count) {
            String one = got.poll(Math.max(1, until - System.currentTimeMillis()), TimeUnit.MILLISECONDS);
            if (one == null) {
                break;
            }
            all.add(one);
        }
        return all;
    }

    private String delay() throws Exception {
        Producer producer = producer("Delay");
        SimpleConsumer consumer = consumer("Delay");
        long due = System.currentTimeMillis() + 3000;
        producer.send(message("Delay", "d").setDeliveryTimestamp(due).build());
        List<MessageView> got = receive(consumer, 1, 60);
        boolean early = System.currentTimeMillis() < due;
        for (MessageView one : got) {
            consumer.ack(one);
        }
        return bodies(got) + (early ? " too early" : " in time");
    }

    /** Two of one group: the second comes when the first is acknowledged. */
    private String fifo() throws Exception {
        Producer producer = producer("Fifo");
        for (int i = 0; i < 3; i++) {
            producer.send(message("Fifo", "f" + i).setMessageGroup("one").build());
        }
        SimpleConsumer consumer = consumer("Fifo");
        List<String> order = new ArrayList<>();
        long until = System.currentTimeMillis() + 120_000;
        while (order.size() < 5 && System.currentTimeMillis() < until) {
            for (MessageView one : consumer.receive(1, Duration.ofSeconds(60))) {
                order.add(text(one) + "/" + one.getDeliveryAttempt());
                if (order.size() == 1) {
                    consumer.changeInvisibleDuration(one, Duration.ofSeconds(30)); // longer than a slow receive takes
                    order.add("then " + consumer.receive(1, Duration.ofSeconds(60)).size());
                } else {
                    consumer.ack(one);
                }
            }
        }
        return order.toString();
    }

    private String fifoPush() throws Exception {
        Producer producer = producer("FifoPush");
        BlockingQueue<String> got = new LinkedBlockingQueue<>();
        PushConsumer consumer = push("FifoPush", got);
        for (int i = 0; i < 4; i++) {
            producer.send(message("FifoPush", (i == 1 ? "fail" : "o") + i).setMessageGroup("one").build());
        }
        List<String> all = poll(got, 5, 60);
        consumer.close();
        return all.toString();
    }

    /** One committed, one rolled back, one that the broker asks about. */
    private String transaction() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        Producer producer = PROVIDER.newProducerBuilder().setTopics("Transaction").setClientConfiguration(configuration)
            .setTransactionChecker(one -> {
                if (!text(one).equals("ask")) {
                    return TransactionResolution.UNKNOWN; // it is about to be ended
                }
                asked.incrementAndGet();
                return TransactionResolution.COMMIT;
            }).build();
        SimpleConsumer consumer = consumer("Transaction");
        for (String body : List.of("commit", "back", "ask")) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message("Transaction", body).build(), transaction);
            if (body.equals("commit")) {
                transaction.commit();
            } else if (body.equals("back")) {
                transaction.rollback();
            }
        }
        List<MessageView> got = receive(consumer, 2, 60);
        for (MessageView one : got) {
            consumer.ack(one);
        }
        return bodies(got) + " asked " + (asked.get() > 0);
    }

    private String recall() throws Exception {
        Producer producer = producer("Recall");
        SimpleConsumer consumer = consumer("Recall");
        long due = System.currentTimeMillis() + 20_000;
        SendReceipt gone = producer.send(message("Recall", "gone").setDeliveryTimestamp(due).build());
        producer.send(message("Recall", "stays").setDeliveryTimestamp(due).build());
        boolean same = producer.recallMessage("Recall", gone.getRecallHandle()).getMessageId().equals(gone.getMessageId());
        List<MessageView> got = receive(consumer, 1, 60);
        got.addAll(consumer.receive(16, Duration.ofSeconds(60))); // both were due at once: no other is to come
        return bodies(got) + " " + same;
    }

    /** The proxy refuses a message of another kind than the topic's. */
    private String wrongType() throws Exception {
        Producer producer = producer("Simple");
        try {
            Message message = message("Simple", "x").setDeliveryTimestamp(System.currentTimeMillis() + 60_000).build();
            producer.send(message);
            return "sent";
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }
}
