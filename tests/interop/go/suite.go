package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/Azure/go-amqp"
)

// suite is what go-amqp can do with a broker: one line "ok NAME" for each scenario.
func suite(ctx context.Context, connection *amqp.Conn) error {
	scenarios := []struct {
		name string
		run  func(context.Context, *amqp.Session, string) error
	}{
		{"in order", inOrder},
		{"outcomes", outcomes},
		{"pre-settled", settled},
		{"a large message", large},
		{"a selector", selector},
		{"a durable subscription", durable},
		{"credit by hand", credit},
		{"errors", failures},
	}
	for number, scenario := range scenarios {
		session, err := connection.NewSession(ctx, nil)
		if err != nil {
			return err
		}
		if err := scenario.run(ctx, session, fmt.Sprintf("go.%d", number)); err != nil {
			return fmt.Errorf("%s: %w", scenario.name, err)
		}
		if err := session.Close(ctx); err != nil {
			return err
		}
		fmt.Println("ok", scenario.name)
	}
	return nil
}

func inOrder(ctx context.Context, session *amqp.Session, name string) error {
	if err := send(ctx, session, name, 100); err != nil {
		return err
	}
	mixed := amqp.SenderSettleModeMixed
	receiver, err := session.NewReceiver(ctx, name, &amqp.ReceiverOptions{Credit: 10, RequestedSenderSettleMode: &mixed})
	if err != nil {
		return err
	}
	for number := range 100 {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		if err := same(message.ApplicationProperties["n"], int64(number)); err != nil {
			return err
		}
		if err := receiver.AcceptMessage(ctx, message); err != nil {
			return err
		}
	}
	return nil
}

func outcomes(ctx context.Context, session *amqp.Session, name string) error {
	if err := send(ctx, session, name, 3); err != nil {
		return err
	}
	receiver, err := session.NewReceiver(ctx, name, &amqp.ReceiverOptions{Credit: 1})
	if err != nil {
		return err
	}
	next := func(number int64, count uint32) *amqp.Message {
		message, failed := receiver.Receive(ctx, nil)
		if failed == nil {
			failed = same(message.ApplicationProperties["n"], number)
		}
		if failed == nil {
			failed = same(message.Header.DeliveryCount, count)
		}
		err = errors.Join(err, failed)
		return message
	}
	steps := []func() error{
		func() error { return receiver.ReleaseMessage(ctx, next(0, 0)) },
		func() error {
			return receiver.ModifyMessage(ctx, next(0, 0), &amqp.ModifyMessageOptions{DeliveryFailed: true})
		},
		func() error { return receiver.AcceptMessage(ctx, next(0, 1)) },
		func() error {
			reason := &amqp.Error{Condition: "app:bad", Description: "no", Info: map[string]any{"field": "price"}}
			return receiver.RejectMessage(ctx, next(1, 0), reason)
		},
		func() error { return receiver.AcceptMessage(ctx, next(2, 0)) },
	}
	for _, step := range steps {
		if failed := step(); failed != nil || err != nil {
			return errors.Join(failed, err)
		}
	}
	filter := amqp.NewSelectorFilter(fmt.Sprintf("\"m.x-opt-ORIG-ADDRESS\" = '%s'", name))
	dead, err := session.NewReceiver(ctx, "DLQ", &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{filter}})
	if err != nil {
		return err
	}
	letter, err := dead.Receive(ctx, nil)
	if err != nil {
		return err
	}
	if err := same(letter.Annotations["x-opt-DL-REASON"], "rejected"); err != nil {
		return err
	}
	return dead.AcceptMessage(ctx, letter)
}

func settled(ctx context.Context, session *amqp.Session, name string) error {
	sender, err := session.NewSender(ctx, name, &amqp.SenderOptions{
		SettlementMode: amqp.SenderSettleModeSettled.Ptr(), TargetCapabilities: []string{"queue"},
	})
	if err != nil {
		return err
	}
	if err := sender.Send(ctx, amqp.NewMessage([]byte("x")), nil); err != nil {
		return err
	}
	receiver, err := session.NewReceiver(ctx, name, &amqp.ReceiverOptions{
		RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
	})
	if err != nil {
		return err
	}
	_, err = receiver.Receive(ctx, nil)
	return err
}

func large(ctx context.Context, session *amqp.Session, name string) error {
	content := make([]byte, 5<<20)
	for at := range content {
		content[at] = byte(at * 7)
	}
	sender, err := session.NewSender(ctx, name, &amqp.SenderOptions{TargetCapabilities: []string{"queue"}})
	if err != nil {
		return err
	}
	if err := sender.Send(ctx, amqp.NewMessage(content), nil); err != nil {
		return err
	}
	receiver, err := session.NewReceiver(ctx, name, nil)
	if err != nil {
		return err
	}
	message, err := receiver.Receive(ctx, nil)
	if err != nil {
		return err
	}
	if !bytes.Equal(message.GetData(), content) {
		return errors.New("it came back as another")
	}
	return receiver.AcceptMessage(ctx, message)
}

func selector(ctx context.Context, session *amqp.Session, name string) error {
	if err := send(ctx, session, name, 5); err != nil {
		return err
	}
	filters := []amqp.LinkFilter{amqp.NewSelectorFilter("n = 3")}
	receiver, err := session.NewReceiver(ctx, name, &amqp.ReceiverOptions{Filters: filters})
	if err != nil {
		return err
	}
	message, err := receiver.Receive(ctx, nil)
	if err != nil {
		return err
	}
	return same(message.ApplicationProperties["n"], int64(3))
}

func durable(ctx context.Context, session *amqp.Session, name string) error {
	options := &amqp.ReceiverOptions{
		Name:               name,
		Durability:         amqp.DurabilityUnsettledState,
		ExpiryPolicy:       amqp.ExpiryPolicyNever,
		SourceCapabilities: []string{"topic"},
	}
	away, err := session.NewReceiver(ctx, "topic://"+name, options)
	if err != nil {
		return err
	}
	if err := away.Close(ctx); err != nil { // which deletes the subscription: it is closed, not detached
		return err
	}
	back, err := session.NewReceiver(ctx, "topic://"+name, options)
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, "topic://"+name, nil)
	if err != nil {
		return err
	}
	if err := sender.Send(ctx, amqp.NewMessage([]byte("news")), nil); err != nil {
		return err
	}
	message, err := back.Receive(ctx, nil)
	if err != nil {
		return err
	}
	return back.AcceptMessage(ctx, message)
}

func credit(ctx context.Context, session *amqp.Session, name string) error {
	if err := send(ctx, session, name, 3); err != nil {
		return err
	}
	receiver, err := session.NewReceiver(ctx, name, &amqp.ReceiverOptions{Credit: -1})
	if err != nil {
		return err
	}
	if err := receiver.IssueCredit(10); err != nil {
		return err
	}
	for range 3 {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		if err := receiver.AcceptMessage(ctx, message); err != nil {
			return err
		}
	}
	return receiver.DrainCredit(ctx, nil)
}

func failures(ctx context.Context, session *amqp.Session, name string) error {
	_, err := session.NewReceiver(ctx, name, &amqp.ReceiverOptions{
		Filters:            []amqp.LinkFilter{amqp.NewSelectorFilter("a = =")},
		SourceCapabilities: []string{"queue"},
	})
	var refused *amqp.Error
	if !errors.As(err, &refused) {
		return fmt.Errorf("a selector that is none: %w", err)
	}
	if err := same(refused.Condition, amqp.ErrCondInvalidField); err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, "small."+name, &amqp.SenderOptions{TargetCapabilities: []string{"queue"}})
	if err != nil {
		return err
	}
	for range 11 {
		err = sender.Send(ctx, amqp.NewMessage([]byte("x")), nil)
	}
	if !errors.As(err, &refused) {
		return fmt.Errorf("an address that is full: %w", err)
	}
	return same(refused.Condition, amqp.ErrCondResourceLimitExceeded)
}

// send sends durable messages that are numbered from 0.
func send(ctx context.Context, session *amqp.Session, name string, count int) error {
	sender, err := session.NewSender(ctx, name, &amqp.SenderOptions{TargetCapabilities: []string{"queue"}})
	if err != nil {
		return err
	}
	for number := range count {
		message := amqp.NewMessage(fmt.Appendf(nil, "m%d", number))
		message.Header = &amqp.MessageHeader{Durable: true, TTL: time.Hour}
		message.ApplicationProperties = map[string]any{"n": int64(number)}
		if err := sender.Send(ctx, message, nil); err != nil {
			return err
		}
	}
	return sender.Close(ctx)
}

func same(found, wanted any) error {
	if found != wanted {
		return fmt.Errorf("%v (%T) instead of %v (%T)", found, found, wanted, wanted)
	}
	return nil
}
