// client-go v2 against `rstore serve`: NAME-SERVICE COUNT; what was sent and seen as one line of JSON.
// Or one consumer of a group: member NAME-SERVICE GROUP TOPIC FILE concurrent|ordered.
// Requests are signed where ACCESS_KEY and SECRET_KEY are set.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	failures "github.com/apache/rocketmq-client-go/v2/errors"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("error")
	if os.Args[1] == "member" {
		member(os.Args[2:])
		return
	}
	names := []string{os.Args[1]}
	credentials := primitive.Credentials{AccessKey: os.Getenv("ACCESS_KEY"), SecretKey: os.Getenv("SECRET_KEY")}
	count, err := strconv.Atoi(os.Args[2])
	check(err)
	sender, err := rocketmq.NewProducer(producer.WithNameServer(names), producer.WithGroupName("GoProducers"),
		producer.WithCredentials(credentials), producer.WithRetry(0))
	check(err)
	check(sender.Start())

	var lock sync.Mutex
	seen, sentAgain := map[string]bool{}, map[string]bool{}
	doubled, unwanted := 0, 0
	// It gives a send up after 3 s, with whatever settings: what is sent again then may have been stored the first time.
	send := func(messages ...*primitive.Message) {
		_, err := sender.SendSync(context.Background(), messages...)
		for again := 0; errors.Is(err, failures.ErrRequestTimeout) && again < 20; again++ {
			lock.Lock()
			for _, message := range messages {
				sentAgain[string(message.Body)] = true
			}
			lock.Unlock()
			_, err = sender.SendSync(context.Background(), messages...)
		}
		check(err)
	}
	send(primitive.NewMessage("Go", []byte("made")))
	reader, err := rocketmq.NewPushConsumer(consumer.WithNameServer(names), consumer.WithGroupName("GoConsumers"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithCredentials(credentials))
	check(err)
	wanted := consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA || TagC"}
	check(reader.Subscribe("Go", wanted,
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			lock.Lock()
			defer lock.Unlock()
			for _, message := range messages {
				body := string(message.Body)
				if seen[body] && !sentAgain[body] {
					doubled++
				}
				if strings.HasPrefix(body, "TagB") {
					unwanted++
				}
				seen[body] = true
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(reader.Start())

	sent := 0
	var batch []*primitive.Message
	for i := 0; i < count; i++ {
		tag := []string{"TagA", "TagB", "TagC"}[i%3]
		message := primitive.NewMessage("Go", []byte(tag+strconv.Itoa(i))).WithTag(tag)
		if tag != "TagB" {
			sent++
		}
		if i < count/2 {
			send(message)
			continue
		}
		batch = append(batch, message)
		if len(batch) == 100 || i == count-1 {
			send(batch...)
			batch = nil
		}
	}
	for end := time.Now().Add(100 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		lock.Lock()
		enough := len(seen) >= sent
		lock.Unlock()
		if enough {
			break
		}
	}
	time.Sleep(500 * time.Millisecond)
	lock.Lock()
	said, _ := json.Marshal(map[string]int{"sent": sent, "seen": len(seen), "doubled": doubled, "unwanted": unwanted})
	fmt.Println(string(said))
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
