// Program member is a member of a consumer group: member NAMESERVER GROUP TOPIC STRATEGY ORDERLY MILLIS [SQL].
//
// SQL is the filter of its subscription. ORDERLY is true or false; a call of the listener takes MILLIS. It prints "ready", then a line of JSON for each message
// as it is consumed, and ends in order with its input.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("fatal")
	strategy := consumer.AllocateByAveragely
	if os.Args[4] == "AVG_BY_CIRCLE" {
		strategy = consumer.AllocateByAveragelyCircle
	}
	millis, err := strconv.Atoi(os.Args[6])
	check(err)
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(primitive.NamesrvAddr{os.Args[1]}),
		consumer.WithGroupName(os.Args[2]),
		consumer.WithInstance(fmt.Sprintf("go%d", os.Getpid())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(os.Args[5] == "true"),
		consumer.WithStrategy(strategy),
	)
	check(err)
	var mutex sync.Mutex
	listen := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			began := time.Now().UnixMilli()
			time.Sleep(time.Duration(millis) * time.Millisecond)
			text, _ := json.Marshal(map[string]interface{}{
				"broker": message.StoreHost, "queue": message.Queue.QueueId, "offset": message.QueueOffset,
				"body": string(message.Body), "began": began, "ended": time.Now().UnixMilli(),
			})
			mutex.Lock()
			fmt.Println(string(text))
			mutex.Unlock()
		}
		return consumer.ConsumeSuccess, nil
	}
	selector := consumer.MessageSelector{}
	if len(os.Args) > 7 {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: os.Args[7]}
	}
	check(c.Subscribe(os.Args[3], selector, listen))
	check(c.Start())
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	check(c.Shutdown())
}
