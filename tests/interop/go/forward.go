package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	amqp "github.com/Azure/go-amqp"
)

// forward takes messages from queues and sends what they say on: every value is decoded to Go's, and encoded from it.
// A route is "FROM>TO,TO"; it ends with the case "end".
func forward(ctx context.Context, session *amqp.Session, selector string, routes []string) error {
	var waiting sync.WaitGroup
	failures := make(chan error, len(routes))
	for _, route := range routes {
		from, to, _ := strings.Cut(route, ">")
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			if err := follow(ctx, session, selector, from, strings.Split(to, ",")); err != nil {
				failures <- fmt.Errorf("%s: %w", from, err)
			}
		}()
	}
	waiting.Wait()
	close(failures)
	return <-failures
}

func follow(ctx context.Context, session *amqp.Session, selector, from string, to []string) error {
	filters := []amqp.LinkFilter{amqp.NewSelectorFilter(selector)}
	receiver, err := session.NewReceiver(ctx, from, &amqp.ReceiverOptions{Credit: 50, Filters: filters})
	if err != nil {
		return err
	}
	var senders []*amqp.Sender
	for _, each := range to {
		sender, err := session.NewSender(ctx, each, nil)
		if err != nil {
			return err
		}
		senders = append(senders, sender)
	}
	for {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		said := map[string]any{}
		for _, name := range []string{"case", "kind"} {
			said[name] = message.ApplicationProperties[name]
		}
		for _, sender := range senders {
			copied := &amqp.Message{Value: message.Value, ApplicationProperties: said}
			if err := sender.Send(ctx, copied, nil); err != nil {
				return fmt.Errorf("%v: %w", said["case"], err)
			}
		}
		if err := receiver.AcceptMessage(ctx, message); err != nil {
			return err
		}
		if said["case"] == "end" {
			return nil
		}
	}
}
