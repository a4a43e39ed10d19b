package io.rstore.clients;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What Apache's strategies of allocation give: a cluster a line of JSON on stdin (queues, clients, rooms, nodes), for each a
 * line: per strategy and client the indexes of its queues, or an error's class name.
 */
public final class Allocations {
    private Allocations() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.append(JSON.toJSONString(all(JSON.parseObject(line)))).append('\n');
        }
        System.out.print(answers);
        System.out.flush();
        System.exit(0);
    }

    private static List<Object> all(JSONObject cluster) {
        List<MessageQueue> queues = new ArrayList<>();
        for (Object queue : cluster.getJSONArray("queues")) {
            JSONObject one = (JSONObject) queue;
            queues.add(new MessageQueue(one.getString("topic"), one.getString("broker"), one.getIntValue("queue_id")));
        }
        List<String> clients = cluster.getJSONArray("clients").toJavaList(String.class);
        AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
        config.setMessageQueueList(queues.subList(0, queues.size() / 2));
        AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
        room.setConsumeridcs(new HashSet<>(cluster.getJSONArray("rooms").toJavaList(String.class)));
        List<AllocateMessageQueueStrategy> strategies = List.of(new AllocateMessageQueueAveragely(),
            new AllocateMessageQueueAveragelyByCircle(), config, room,
            nearby(new AllocateMessageQueueAveragely()), nearby(new AllocateMessageQueueAveragelyByCircle()),
            new AllocateMessageQueueConsistentHash(cluster.getIntValue("nodes")));
        List<Object> given = new ArrayList<>();
        for (AllocateMessageQueueStrategy strategy : strategies) {
            List<Object> shares = new ArrayList<>();
            for (String client : cluster.getJSONArray("asked").toJavaList(String.class)) {
                shares.add(share(strategy, client, queues, clients));
            }
            given.add(List.of(strategy.getName(), shares));
        }
        return given;
    }

    private static Object share(AllocateMessageQueueStrategy strategy, String client, List<MessageQueue> queues,
        List<String> clients) {
        List<Integer> indexes = new ArrayList<>();
        try {
            for (MessageQueue queue : strategy.allocate("G", client, queues, clients)) {
                indexes.add(queues.indexOf(queue));
            }
        } catch (RuntimeException e) {
            return e.getClass().getSimpleName();
        }
        return indexes;
    }

    private static AllocateMachineRoomNearby nearby(AllocateMessageQueueStrategy strategy) {
        return new AllocateMachineRoomNearby(strategy, new AllocateMachineRoomNearby.MachineRoomResolver() {
            @Override
            public String brokerDeployIn(MessageQueue queue) {
                return first(queue.getBrokerName());
            }

            @Override
            public String consumerDeployIn(String client) {
                return first(client);
            }
        });
    }

    /** The room: what stands before the first @. */
    private static String first(String name) {
        int at = name.indexOf('@');
        return at < 0 ? "" : name.substring(0, at);
    }
}
