package io.rstore.clients;

import com.alibaba.fastjson.JSON;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Clients that go on whatever becomes of the broker, and tell what was acknowledged and what they got. */
public final class Load {
    private static final long PAUSE_MS = 50;
    private static final long PATIENCE_MS = 40_000;
    private final String names;
    private final String topic;
    private final Set<String> keys = ConcurrentHashMap.newKeySet();
    private final Map<String, Object> answer = new TreeMap<>();

    private Load(String names, String topic) {
        this.names = names;
        this.topic = topic;
    }

    /** produce|consume NAME-SERVICE TOPIC FILE [THREADS]. FILE: the keys, one a line: written, or expected. */
    public static void main(String[] args) throws Exception {
        Load load = new Load(args[1], args[2]);
        if (args[0].equals("produce")) {
            load.produce(Path.of(args[3]), Integer.parseInt(args[4]));
        } else {
            load.consume(Files.readAllLines(Path.of(args[3])));
        }
        System.out.println(JSON.toJSONString(load.answer));
        System.exit(0);
    }

    /** Sends until stdin ends, and says so once the first is acknowledged, and once the first is refused. The client's own retries are on; a send that failed all the same is another message. */
    private void produce(Path file, int threads) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("load");
        producer.setNamesrvAddr(names);
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.start();
        AtomicLong number = new AtomicLong();
        Map<String, AtomicInteger> refused = new ConcurrentHashMap<>();
        AtomicInteger cut = new AtomicInteger();
        AtomicBoolean first = new AtomicBoolean(true);
        AtomicBoolean firstRefused = new AtomicBoolean(true);
        Thread[] senders = new Thread[threads];
        boolean[] ended = {false};
        for (int at = 0; at < threads; at++) {
            senders[at] = new Thread(() -> {
                while (!ended[0]) {
                    String key = "java-plain-" + number.incrementAndGet();
                    Message message = new Message(topic, "a", key, new byte[500]);
                    try {
                        if (producer.send(message).getSendStatus() == SendStatus.SEND_OK) {
                            if (keys.add(key) && first.compareAndSet(true, false)) {
                                System.out.println("sending");
                            }
                        }
                    } catch (Exception e) {
                        Throwable why = e instanceof MQBrokerException ? e : e.getCause(); // that of its last retry
                        if (why instanceof MQBrokerException) {
                            MQBrokerException said = (MQBrokerException) why;
                            if (firstRefused.compareAndSet(true, false)) {
                                System.out.println("refused");
                            }
                            refused.computeIfAbsent(said.getResponseCode() + " " + said.getErrorMessage(),
                                k -> new AtomicInteger()).incrementAndGet();
                        } else {
                            cut.incrementAndGet();
                        }
                        rest();
                    }
                }
            });
            senders[at].start();
        }
        while (System.in.read() >= 0) {
            continue;
        }
        ended[0] = true;
        for (Thread sender : senders) {
            sender.join();
        }
        Files.write(file, keys);
        answer.put("acknowledged", keys.size());
        answer.put("refused", refused);
        answer.put("cut", cut.get());
    }

    /** Gets everything, until all that is expected was there, or for a while nothing new came. */
    private void consume(List<String> expected) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("load-" + System.nanoTime());
        consumer.setNamesrvAddr(names);
        consumer.setPollNameServerInterval(1000); // a route that does not come at the start comes 30 s later, else
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        AtomicLong last = new AtomicLong(System.currentTimeMillis());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                if (keys.add(message.getKeys())) {
                    last.set(System.currentTimeMillis());
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        while (!keys.containsAll(expected) && System.currentTimeMillis() - last.get() < PATIENCE_MS) {
            Thread.sleep(PAUSE_MS);
        }
        answer.put("expected", expected.size());
        answer.put("missing", expected.stream().filter(key -> !keys.contains(key)).count());
        answer.put("seen", keys.size());
    }

    private static void rest() {
        try {
            Thread.sleep(PAUSE_MS);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
