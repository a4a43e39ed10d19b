package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// One consumer of a group: NAME-SERVICE GROUP TOPIC FILE concurrent|ordered. It ends, as one that is shut down, with its
// stdin. FILE: a line a message, written before it counts as consumed.
func member(words []string) {
	file, err := os.OpenFile(words[3], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(err)
	reader, err := rocketmq.NewPushConsumer(consumer.WithNameServer(words[:1]), consumer.WithGroupName(words[1]),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(words[4] == "ordered"),
		consumer.WithInstance(fmt.Sprint(os.Getpid())))
	check(err)
	var lock sync.Mutex
	check(reader.Subscribe(words[2], consumer.MessageSelector{},
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			lock.Lock()
			defer lock.Unlock()
			for _, message := range messages {
				_, err := fmt.Fprintf(file, "%d %d %d %s\n", time.Now().UnixNano(), message.Queue.QueueId,
					message.QueueOffset, message.Body)
				check(err)
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(reader.Start())
	fmt.Println("started")
	_, err = io.Copy(io.Discard, os.Stdin)
	check(err)
	check(reader.Shutdown())
}
