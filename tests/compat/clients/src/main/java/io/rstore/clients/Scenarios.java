package io.rstore.clients;

import com.alibaba.fastjson.JSON;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** One way of using a broker: sends, consumes and counts; the counts are one line of JSON on stdout. */
public final class Scenarios {
    private static final long PATIENCE_MS = 120_000;
    /** Of a send: one that is given up may be stored all the same, or is sent again and stored twice. */
    private static final int SEND_MS = 60_000;
    private final String names;
    private final int count;
    private final Map<String, Object> answer = new TreeMap<>();
    private final Set<String> seen = ConcurrentHashMap.newKeySet();
    private final AtomicInteger doubled = new AtomicInteger();
    private final Map<String, Integer> again = new ConcurrentHashMap<>();
    private DefaultMQProducer producer;

    private Scenarios(String names, int count) {
        this.names = names;
        this.count = count;
    }

    /** SCENARIO NAME-SERVICE COUNT. */
    public static void main(String[] args) {
        try {
            System.out.println(JSON.toJSONString(play(args)));
            System.exit(0);
        } catch (Exception failed) {
            failed.printStackTrace();
            System.exit(1); // the clients' threads would go on
        }
    }

    private static Map<String, Object> play(String[] args) throws Exception {
        Scenarios run = new Scenarios(args[1], Integer.parseInt(args[2]));
        run.producer = new DefaultMQProducer("producers-" + args[0]);
        run.producer.setNamesrvAddr(run.names);
        run.producer.setSendMsgTimeout(SEND_MS);
        run.producer.start();
        switch (args[0]) {
            case "cluster": run.cluster(); break;
            case "tags": run.tags(); break;
            case "sql": run.sql(); break;
            case "batch": run.batch(); break;
            case "oneway": run.oneway(); break;
            case "orderly": run.orderly(true); break;
            case "joining": run.orderly(false); break;
            case "broadcast": run.broadcast(); break;
            case "delayed": run.delayed(); break;
            case "dead": run.dead(); break;
            case "transactions": run.transactions(); break;
            case "request": run.request(); break;
            default: throw new IllegalArgumentException(args[0]);
        }
        run.answer.put("seen", run.seen.size());
        run.answer.put("doubled", run.doubled.get());
        return run.answer;
    }

    /** Two members of a group share the messages of many senders. */
    private void cluster() throws Exception {
        make("Cluster");
        AtomicInteger first = new AtomicInteger();
        AtomicInteger second = new AtomicInteger();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (AtomicInteger mine : List.of(first, second)) {
            members.add(consumer("cluster", "Cluster", "*"));
            start(members.get(members.size() - 1), mine);
        }
        joined("Cluster", members);
        int threads = 8;
        CountDownLatch done = new CountDownLatch(threads);
        AtomicInteger sent = new AtomicInteger();
        for (int t = 0; t < threads; t++) {
            int from = t;
            new Thread(() -> {
                try {
                    for (int i = from; i < count; i += threads) {
                        if (send("Cluster", "t", "m" + i).getSendStatus() == SendStatus.SEND_OK) {
                            sent.incrementAndGet();
                        }
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                }
                done.countDown();
            }).start();
        }
        done.await();
        answer.put("sent", sent.get());
        await(() -> seen.size() >= count);
        answer.put("shared", first.get() > 0 && second.get() > 0);
    }

    private void tags() throws Exception {
        make("Tags");
        start(consumer("tags", "Tags", "TagA || TagB"), new AtomicInteger());
        String[] tags = {"TagA", "TagB", "TagC"};
        int wanted = 0;
        for (int i = 0; i < count; i++) {
            send("Tags", tags[i % 3], tags[i % 3] + i);
            wanted += i % 3 < 2 ? 1 : 0;
        }
        answer.put("sent", wanted);
        await(new Enough(wanted));
        answer.put("unwanted", seen.stream().filter(body -> body.startsWith("TagC")).count());
    }

    private void sql() throws Exception {
        make("Sql");
        DefaultMQPushConsumer consumer = consumer("sql", "Sql", null);
        consumer.subscribe("Sql", MessageSelector.bySql("(a BETWEEN 1 AND 3 AND b = 'x') OR (TAGS IN ('gold') AND c IS NULL)"));
        start(consumer, new AtomicInteger());
        Thread.sleep(1000);
        int wanted = 0;
        for (int i = 0; i < count; i++) {
            Message message = new Message("Sql", i % 10 == 9 ? "gold" : "t", "k", ("m" + i).getBytes());
            message.putUserProperty("a", "" + i % 5);
            message.putUserProperty("b", i % 2 == 0 ? "x" : "y");
            if (i % 20 == 9) {
                message.putUserProperty("c", "1");
            }
            int a = i % 5;
            boolean matches = a >= 1 && a <= 3 && i % 2 == 0 || i % 10 == 9 && i % 20 != 9;
            wanted += matches ? 1 : 0;
            producer.send(message);
        }
        answer.put("sent", wanted);
        await(new Enough(wanted));
        Thread.sleep(1000);
    }

    private void batch() throws Exception {
        make("Batch");
        start(consumer("batch", "Batch", "*"), new AtomicInteger());
        for (int i = 0; i < count; i += 100) {
            List<Message> messages = new ArrayList<>();
            for (int k = i; k < i + 100; k++) {
                messages.add(new Message("Batch", "t", "k" + k, ("m" + k).getBytes()));
            }
            producer.send(messages);
        }
        answer.put("sent", count);
        await(() -> seen.size() >= count);
    }

    private void oneway() throws Exception {
        make("Oneway");
        start(consumer("oneway", "Oneway", "*"), new AtomicInteger());
        CountDownLatch answered = new CountDownLatch(count / 2);
        for (int i = 0; i < count; i++) {
            Message message = new Message("Oneway", "t", "k" + i, ("m" + i).getBytes());
            if (i % 2 == 0) {
                producer.sendOneway(message);
            } else {
                producer.send(message, new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        answered.countDown();
                    }

                    @Override
                    public void onException(Throwable e) {
                        e.printStackTrace();
                    }
                });
            }
            if (i % 64 == 63) {
                Thread.sleep(1); // the client's own limit for one-way sends in flight
            }
        }
        answer.put("sent", count);
        await(() -> seen.size() >= count && answered.getCount() == 0);
        answer.put("unanswered", answered.getCount());
    }

    private void orderly(boolean joinFirst) throws Exception {
        String name = joinFirst ? "Orderly" : "Joining" + System.currentTimeMillis();
        make(name);
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        Map<Integer, List<Integer>> order = new ConcurrentHashMap<>();
        for (int member = 0; member < 2; member++) {
            DefaultMQPushConsumer consumer = consumer(name.toLowerCase(), name, "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt message : messages) {
                    String body = new String(message.getBody());
                    if (!body.equals("made")) {
                        note(body);
                        order.computeIfAbsent(message.getQueueId(), k -> Collections.synchronizedList(new ArrayList<>()))
                            .add(Integer.parseInt(body));
                    }
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            members.add(consumer);
        }
        if (joinFirst) { // a queue that changes hands may give its last message twice: not what is looked at here
            joined(name, members);
        }
        for (int i = 0; i < count; i++) {
            producer.send(new Message(name, "t", "k", ("" + i).getBytes()),
                (queues, message, at) -> queues.get((Integer) at % queues.size()), i);
        }
        answer.put("sent", count);
        await(() -> seen.size() >= count);
        boolean sorted = true;
        for (List<Integer> numbers : order.values()) {
            for (int i = 1; i < numbers.size(); i++) {
                sorted &= numbers.get(i) > numbers.get(i - 1);
            }
        }
        answer.put("sorted", sorted);
    }

    private void broadcast() throws Exception {
        make("Broadcast");
        AtomicInteger[] got = {new AtomicInteger(), new AtomicInteger()};
        for (AtomicInteger mine : got) {
            DefaultMQPushConsumer consumer = consumer("broadcast", "Broadcast", "*");
            consumer.setMessageModel(MessageModel.BROADCASTING);
            Set<String> own = ConcurrentHashMap.newKeySet();
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    String body = new String(message.getBody());
                    if (!body.equals("made") && !own.add(body)) {
                        doubled.incrementAndGet();
                    }
                    mine.set(own.size());
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }
        Thread.sleep(2000);
        for (int i = 0; i < count; i++) {
            send("Broadcast", "t", "m" + i);
        }
        answer.put("sent", count);
        await(() -> got[0].get() >= count && got[1].get() >= count);
        answer.put("first", got[0].get());
        answer.put("second", got[1].get());
    }

    private void delayed() throws Exception {
        make("Delayed");
        Map<String, Long> late = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = consumer("delayed", "Delayed", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody());
                if (!body.equals("made")) {
                    note(body);
                    late.put(body, System.currentTimeMillis() - message.getBornTimestamp());
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int i = 0; i < count; i++) {
            Message message = new Message("Delayed", "t", "k" + i, ("m" + i).getBytes());
            message.setDelayTimeLevel(1 + i % 2); // 1 s, 5 s
            producer.send(message);
        }
        answer.put("sent", count);
        await(() -> seen.size() >= count);
        long early = late.entrySet().stream()
            .filter(one -> one.getValue() < (Integer.parseInt(one.getKey().substring(1)) % 2 == 0 ? 1000 : 5000))
            .count();
        answer.put("early", early);
    }

    private void dead() throws Exception {
        make("Poison");
        Map<String, Integer> tries = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = consumer("poison", "Poison", "*");
        consumer.setMaxReconsumeTimes(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean fails = false;
            for (MessageExt message : messages) {
                String body = new String(message.getBody());
                if (!body.equals("made")) {
                    tries.merge(body, 1, Integer::sum);
                    fails = true;
                }
            }
            context.setDelayLevelWhenNextConsume(1);
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.start();
        for (int i = 0; i < count; i++) {
            send("Poison", "t", "m" + i);
        }
        answer.put("sent", count);
        await(() -> tries.values().stream().filter(times -> times >= 2).count() >= count);
        answer.put("tried", tries.values().stream().filter(times -> times == 2).count());
        Thread.sleep(2000);
        start(consumer("burial", "%DLQ%poison", "*"), new AtomicInteger());
        await(() -> seen.size() >= count);
    }

    private void transactions() throws Exception {
        make("Transactions");
        LocalTransactionState[] states = {
            LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.UNKNOW
        };
        Map<String, Integer> asked = new ConcurrentHashMap<>();
        TransactionMQProducer sender = new TransactionMQProducer("transactions");
        sender.setNamesrvAddr(names);
        sender.setSendMsgTimeout(SEND_MS);
        sender.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                return states[(Integer) number % 3];
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = new String(message.getBody());
                asked.merge(body, 1, Integer::sum);
                return number(body) % 3 == 1 ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        sender.start();
        start(consumer("transactional", "Transactions", "*"), new AtomicInteger());
        int wanted = 0;
        for (int i = 0; i < count; i++) {
            sender.sendMessageInTransaction(new Message("Transactions", "t", "k" + i, ("m" + i).getBytes()), i);
            wanted += i % 3 == 1 ? 0 : 1;
        }
        answer.put("sent", wanted);
        await(new Enough(wanted));
        Thread.sleep(3000);
        answer.put("rolledBack", seen.stream().filter(body -> number(body) % 3 == 1).count());
        answer.put("checked", asked.values().stream().mapToInt(Integer::intValue).sum());
        // where an end comes later than a broker waits, it asks although it need not, and each commit stores a copy
        again.forEach((body, copies) -> {
            int needless = asked.getOrDefault(body, 0) - (number(body) % 3 == 2 ? 1 : 0);
            doubled.addAndGet(-Math.min(copies, needless));
        });
    }

    private static int number(String body) {
        return Integer.parseInt(body.substring(1));
    }

    /** A consumer answers each request; the reply goes back to the thread that waits for it. */
    private void request() throws Exception {
        make("Requests");
        DefaultMQProducer replier = new DefaultMQProducer("repliers");
        replier.setNamesrvAddr(names);
        replier.setInstanceName("replier");
        replier.setSendMsgTimeout(SEND_MS);
        replier.start();
        DefaultMQPushConsumer consumer = consumer("answering", "Requests", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    if (!new String(message.getBody()).equals("made")) {
                        replier.send(MessageUtil.createReplyMessage(message, ("re " + new String(message.getBody())).getBytes()));
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            } catch (Exception e) {
                e.printStackTrace();
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
        });
        consumer.start();
        known("producers-request", "Requests");
        int sent = 0;
        int others = 0;
        for (int i = 0; i < count; i++) {
            String body = "m" + i;
            Message reply = producer.request(new Message("Requests", "t", "k" + i, body.getBytes()), SEND_MS);
            String answered = new String(reply.getBody());
            note(answered);
            others += answered.equals("re " + body) ? 0 : 1;
            sent++;
        }
        answer.put("sent", sent);
        answer.put("ofAnother", others);
    }

    // --- parts -------------------------------------------------------------------------------------------------------

    private final class Enough implements Callable<Boolean> {
        private final int wanted;

        Enough(int wanted) {
            this.wanted = wanted;
        }

        @Override
        public Boolean call() {
            return seen.size() >= wanted;
        }
    }

    /** A topic is there when its first message is, and for consumers when the name server knows it. */
    private void make(String topic) throws Exception {
        send(topic, "made", "made");
        await(() -> {
            try {
                return !producer.fetchPublishMessageQueues(topic).isEmpty();
            } catch (MQClientException unknown) {
                return false;
            }
        });
    }

    /** Waits until the broker knows a group's producer, which it answers: from a heartbeat on, and one may have come too early. */
    private void known(String group, String topic) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(names);
        admin.start();
        await(() -> {
            try {
                return !admin.examineProducerConnectionInfo(group, topic).getConnectionSet().isEmpty();
            } catch (Exception unknown) { // or a broker that has no time to answer
                return false;
            }
        });
        admin.shutdown();
    }

    /** Waits until each member of a group has its share of the topic's queues. */
    private void joined(String topic, List<DefaultMQPushConsumer> members) throws Exception {
        int queues = producer.fetchPublishMessageQueues(topic).size();
        await(() -> {
            int[] held = members.stream().mapToInt(one -> (int) one.getDefaultMQPushConsumerImpl().getRebalanceImpl()
                .getProcessQueueTable().keySet().stream().filter(queue -> queue.getTopic().equals(topic)).count()).toArray();
            return IntStream.of(held).sum() == queues && IntStream.of(held).min().getAsInt() >= queues / members.size();
        });
    }

    private SendResult send(String topic, String tag, String body) throws Exception {
        return producer.send(new Message(topic, tag, "k-" + body, body.getBytes()));
    }

    private DefaultMQPushConsumer consumer(String group, String topic, String expression) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName(group + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (expression != null) {
            consumer.subscribe(topic, expression);
        }
        return consumer;
    }

    private void start(DefaultMQPushConsumer consumer, AtomicInteger mine) throws Exception {
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody());
                if (!body.equals("made")) {
                    note(body);
                    mine.incrementAndGet();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private void note(String body) {
        if (!seen.add(body)) {
            doubled.incrementAndGet();
            again.merge(body, 1, Integer::sum);
        }
    }

    private void await(Callable<Boolean> enough) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!enough.call() && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
    }
}
