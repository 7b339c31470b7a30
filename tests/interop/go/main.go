// Program interop plays one scenario with RocketMQ's Go client and prints its outcome as JSON.
//
//	interop NAMESERVER PREFIX
//
// It sends one by one, asynchronously, oneway, in order, as a batch and compressed, then consumes all of it: with a
// concurrent consumer, one for a tag, and one in order. Topics and groups begin with PREFIX.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// received holds what a consumer got: bodies by queue, in order.
type received struct {
	sync.Mutex
	bodies map[int][]string
	count  int
}

func (r *received) add(messages []*primitive.MessageExt) {
	r.Lock()
	defer r.Unlock()
	for _, message := range messages {
		body := string(message.Body)
		if len(body) > 100 {
			body = fmt.Sprintf("%d bytes", len(body))
		}
		r.bodies[message.Queue.QueueId] = append(r.bodies[message.Queue.QueueId], body)
		r.count++
	}
}

func (r *received) wait(count int) {
	for i := 0; i < 200; i++ {
		r.Lock()
		done := r.count >= count
		r.Unlock()
		if done {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// sorted returns all bodies, sorted.
func (r *received) sorted() []string {
	r.Lock()
	defer r.Unlock()
	all := []string{}
	for _, bodies := range r.bodies {
		all = append(all, bodies...)
	}
	sort.Strings(all)
	return all
}

func consume(server, group, topic, tags string, orderly bool) (*received, rocketmq.PushConsumer) {
	got := &received{bodies: map[int][]string{}}
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(primitive.NamesrvAddr{server}),
		consumer.WithGroupName(group),
		consumer.WithInstance(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(orderly),
	)
	check(err)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	check(c.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		got.add(messages)
		return consumer.ConsumeSuccess, nil
	}))
	check(c.Start())
	return got, c
}

func main() {
	rlog.SetLogLevel("fatal")
	server, prefix := os.Args[1], os.Args[2]
	topic, steps := prefix+"-orders", prefix+"-steps"
	outcome := map[string]interface{}{}
	p, err := rocketmq.NewProducer(
		producer.WithNameServer(primitive.NamesrvAddr{server}),
		producer.WithGroupName(prefix+"-producers"),
		producer.WithInstanceName(prefix),
		producer.WithQueueSelector(producer.NewHashQueueSelector()),
	)
	check(err)
	check(p.Start())
	statuses := map[string]int{}
	background := context.Background()
	for i := 0; i < 6; i++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprintf("sync %d", i)))
		message.WithTag([]string{"A", "B", "C"}[i%3])
		message.WithKeys([]string{fmt.Sprintf("key-%d", i)})
		message.WithProperty("number", fmt.Sprint(i))
		sent, err := p.SendSync(background, message)
		check(err)
		statuses[fmt.Sprintf("sync %d", sent.Status)]++
	}
	var mutex sync.Mutex
	var wait sync.WaitGroup
	for i := 0; i < 6; i++ {
		wait.Add(1)
		check(p.SendAsync(background, func(_ context.Context, sent *primitive.SendResult, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			defer wait.Done()
			if err != nil {
				statuses["async "+err.Error()]++
			} else {
				statuses[fmt.Sprintf("async %d", sent.Status)]++
			}
		}, primitive.NewMessage(topic, []byte(fmt.Sprintf("async %d", i)))))
	}
	wait.Wait()
	check(p.SendOneWay(background, primitive.NewMessage(topic, []byte("oneway"))))
	batch := []*primitive.Message{}
	for i := 0; i < 3; i++ {
		batch = append(batch, primitive.NewMessage(topic, []byte(fmt.Sprintf("batch %d", i))))
	}
	sent, err := p.SendSync(background, batch...)
	check(err)
	statuses[fmt.Sprintf("batch %d", sent.Status)]++
	_, err = p.SendSync(background, primitive.NewMessage(topic, []byte(strings.Repeat("a", 10000)))) // compressed: over 4 KiB
	check(err)
	for i := 0; i < 12; i++ {
		message := primitive.NewMessage(steps, []byte(fmt.Sprintf("step %d of user %d", i/3, i%3)))
		message.WithShardingKey(fmt.Sprintf("user-%d", i%3))
		_, err := p.SendSync(background, message)
		check(err)
	}
	outcome["statuses"] = statuses

	all, first := consume(server, prefix+"-all", topic, "*", false)
	some, second := consume(server, prefix+"-some", topic, "A || B", false)
	ordered, third := consume(server, prefix+"-ordered", steps, "*", true)
	all.wait(17)
	some.wait(4)
	ordered.wait(12)
	outcome["all"], outcome["some"] = all.sorted(), some.sorted()
	users := map[string][]string{}
	ordered.Lock()
	for _, bodies := range ordered.bodies {
		for _, body := range bodies {
			user := body[strings.LastIndex(body, " ")+1:]
			users[user] = append(users[user], body)
		}
	}
	ordered.Unlock()
	outcome["ordered"] = users
	text, err := json.Marshal(outcome)
	check(err)
	fmt.Println(string(text))
	for _, c := range []rocketmq.PushConsumer{first, second, third} {
		check(c.Shutdown())
	}
	check(p.Shutdown())
}
