package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/eclipse/paho.golang/paho"
	mqtt "github.com/eclipse/paho.mqtt.golang"
)

const patience = 20 * time.Second

// mqttSuite is what the two Go clients of Eclipse can do with a broker: one line "ok NAME" for each scenario.
func mqttSuite(ctx context.Context, port string) error {
	scenarios := []struct {
		name string
		run  func(context.Context, string) error
	}{
		{"3.1.1: every QoS", oldQoS},
		{"3.1.1: a session that stays", oldSession},
		{"3.1.1: retained messages", oldRetained},
		{"5: every QoS", newQoS},
		{"5: properties", newProperties},
		{"5: a session that stays", newSession},
	}
	for _, scenario := range scenarios {
		if err := scenario.run(ctx, port); err != nil {
			return fmt.Errorf("%s: %w", scenario.name, err)
		}
		fmt.Println("ok", scenario.name)
	}
	return nil
}

// -- paho.mqtt.golang: 3.1.1 -----------------------------------------------------------------------------------------

func done(token mqtt.Token) error {
	if !token.WaitTimeout(patience) {
		return errors.New("no answer")
	}
	return token.Error()
}

// old is a client of 3.1.1 and what arrives for it.
func old(port, id string, change func(*mqtt.ClientOptions)) (mqtt.Client, chan mqtt.Message, error) {
	arrived := make(chan mqtt.Message, 1000)
	options := mqtt.NewClientOptions().AddBroker("tcp://127.0.0.1:" + port).SetClientID(id).SetProtocolVersion(4)
	options.SetAutoReconnect(false).SetDefaultPublishHandler(func(_ mqtt.Client, m mqtt.Message) { arrived <- m })
	if change != nil {
		change(options)
	}
	client := mqtt.NewClient(options)
	return client, arrived, done(client.Connect())
}

func next(arrived chan mqtt.Message) (mqtt.Message, error) {
	select {
	case message := <-arrived:
		return message, nil
	case <-time.After(patience):
		return nil, errors.New("no message")
	}
}

func oldQoS(_ context.Context, port string) error {
	client, arrived, err := old(port, "go-3-qos", nil)
	if err != nil {
		return err
	}
	defer client.Disconnect(100)
	if err := done(client.Subscribe("go/3/+", 2, nil)); err != nil {
		return err
	}
	for number := range 60 {
		if err := done(client.Publish("go/3/a", byte(number%3), false, fmt.Sprint(number))); err != nil {
			return err
		}
	}
	seen := map[byte]int{}
	for range 60 {
		message, err := next(arrived)
		if err != nil {
			return err
		}
		qos := message.Qos()
		if err := same(string(message.Payload()), fmt.Sprint(3*seen[qos]+int(qos))); err != nil {
			return err
		}
		seen[qos]++
	}
	return same(seen[2], 20)
}

func oldSession(_ context.Context, port string) error {
	kept := func(options *mqtt.ClientOptions) { options.SetCleanSession(false) }
	client, _, err := old(port, "go-3-stays", kept)
	if err != nil {
		return err
	}
	if err := done(client.Subscribe("go/3/stays", 1, nil)); err != nil {
		return err
	}
	client.Disconnect(100)
	other, _, err := old(port, "go-3-other", nil)
	if err != nil {
		return err
	}
	defer other.Disconnect(100)
	for number := range 10 {
		if err := done(other.Publish("go/3/stays", 1, false, fmt.Sprint(number))); err != nil {
			return err
		}
	}
	client, arrived, err := old(port, "go-3-stays", kept)
	if err != nil {
		return err
	}
	for number := range 10 {
		message, err := next(arrived)
		if err != nil {
			return err
		}
		if err := same(string(message.Payload()), fmt.Sprint(number)); err != nil {
			return err
		}
	}
	defer client.Disconnect(100)
	return done(client.Unsubscribe("go/3/stays"))
}

func oldRetained(_ context.Context, port string) error {
	mortal, _, err := old(port, "go-3-mortal", func(options *mqtt.ClientOptions) {
		options.SetBinaryWill("go/3/status", []byte("dead"), 1, true)
	})
	if err != nil {
		return err
	}
	if err := done(mortal.Publish("go/3/status", 1, true, "alive")); err != nil {
		return err
	}
	mortal.Disconnect(100)
	client, arrived, err := old(port, "go-3-watcher", nil)
	if err != nil {
		return err
	}
	defer client.Disconnect(100)
	if err := done(client.Subscribe("go/3/status", 1, nil)); err != nil {
		return err
	}
	message, err := next(arrived)
	if err != nil {
		return err
	}
	if err := same(message.Retained(), true); err != nil {
		return err
	}
	if err := same(string(message.Payload()), "alive"); err != nil {
		return err
	}
	return done(client.Publish("go/3/status", 1, true, ""))
}

// -- paho.golang: 5 ----------------------------------------------------------------------------------------------------

// fresh is a client of 5 and what arrives for it; `expiry` in seconds.
func fresh(ctx context.Context, port, id string, expiry uint32) (*paho.Client, chan *paho.Publish, *paho.Connack, error) {
	connection, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return nil, nil, nil, err
	}
	arrived := make(chan *paho.Publish, 1000)
	client := paho.NewClient(paho.ClientConfig{
		Conn: connection,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){
			func(received paho.PublishReceived) (bool, error) {
				arrived <- received.Packet
				return true, nil
			},
		},
	})
	connack, err := client.Connect(ctx, &paho.Connect{
		ClientID:   id,
		KeepAlive:  30,
		CleanStart: expiry == 0,
		Properties: &paho.ConnectProperties{SessionExpiryInterval: &expiry},
	})
	return client, arrived, connack, err
}

func nextFresh(arrived chan *paho.Publish) (*paho.Publish, error) {
	select {
	case message := <-arrived:
		return message, nil
	case <-time.After(patience):
		return nil, errors.New("no message")
	}
}

func subscribed(ctx context.Context, client *paho.Client, filter string, qos byte) error {
	_, err := client.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: qos}}})
	return err
}

func newQoS(ctx context.Context, port string) error {
	client, arrived, _, err := fresh(ctx, port, "go-5-qos", 0)
	if err != nil {
		return err
	}
	defer client.Disconnect(&paho.Disconnect{})
	if err := subscribed(ctx, client, "go/5/+", 2); err != nil {
		return err
	}
	for number := range 60 {
		message := &paho.Publish{Topic: "go/5/a", QoS: byte(number % 3), Payload: fmt.Append(nil, number)}
		if _, err := client.Publish(ctx, message); err != nil {
			return err
		}
	}
	seen := map[byte]int{}
	for range 60 {
		message, err := nextFresh(arrived)
		if err != nil {
			return err
		}
		if err := same(string(message.Payload), fmt.Sprint(3*seen[message.QoS]+int(message.QoS))); err != nil {
			return err
		}
		seen[message.QoS]++
	}
	return same(seen[2], 20)
}

func newProperties(ctx context.Context, port string) error {
	client, arrived, _, err := fresh(ctx, port, "go-5-properties", 0)
	if err != nil {
		return err
	}
	defer client.Disconnect(&paho.Disconnect{})
	if err := subscribed(ctx, client, "go/5/properties", 1); err != nil {
		return err
	}
	told := &paho.PublishProperties{ContentType: "text/plain", ResponseTopic: "answers", CorrelationData: []byte{0, 255}}
	told.User.Add("colour", "blue").Add("colour", "red")
	response, err := client.Publish(ctx, &paho.Publish{Topic: "go/5/properties", QoS: 1, Payload: []byte("x"), Properties: told})
	if err != nil {
		return err
	}
	if err := same(response.ReasonCode, byte(0)); err != nil {
		return err
	}
	message, err := nextFresh(arrived)
	if err != nil {
		return err
	}
	found := message.Properties
	if found.ContentType != "text/plain" || found.ResponseTopic != "answers" || !bytes.Equal(found.CorrelationData, []byte{0, 255}) {
		return fmt.Errorf("properties are %v", found)
	}
	return same(fmt.Sprint(found.User.GetAll("colour")), "[blue red]")
}

func newSession(ctx context.Context, port string) error {
	client, _, connack, err := fresh(ctx, port, "go-5-stays", 600)
	if err != nil {
		return err
	}
	if err := same(connack.SessionPresent, false); err != nil {
		return err
	}
	if err := subscribed(ctx, client, "go/5/stays", 2); err != nil {
		return err
	}
	if err := client.Disconnect(&paho.Disconnect{}); err != nil {
		return err
	}
	other, _, _, err := fresh(ctx, port, "go-5-other", 0)
	if err != nil {
		return err
	}
	defer other.Disconnect(&paho.Disconnect{})
	for number := range 10 {
		message := &paho.Publish{Topic: "go/5/stays", QoS: 2, Payload: fmt.Append(nil, number)}
		if _, err := other.Publish(ctx, message); err != nil {
			return err
		}
	}
	client, arrived, connack, err := fresh(ctx, port, "go-5-stays", 600)
	if err != nil {
		return err
	}
	if err := same(connack.SessionPresent, true); err != nil {
		return err
	}
	for number := range 10 {
		message, err := nextFresh(arrived)
		if err != nil {
			return err
		}
		if err := same(string(message.Payload), fmt.Sprint(number)); err != nil {
			return err
		}
	}
	never := uint32(0)
	return client.Disconnect(&paho.Disconnect{Properties: &paho.DisconnectProperties{SessionExpiryInterval: &never}})
}
