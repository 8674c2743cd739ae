// go-amqp and the MQTT clients of Eclipse against the broker; run by tests/interop/test_programs.py.
//
//	peer PORT suite
//	peer PORT mqtt
//	peer PORT forward SELECTOR FROM>TO,TO ...
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	amqp "github.com/Azure/go-amqp"
)

// patienceOfAll is RUN_S of programs.py, which ends it otherwise.
const patienceOfAll = 2 * time.Minute

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), patienceOfAll)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, port, command string, arguments []string) error {
	if command == "mqtt" {
		return mqttSuite(ctx, port)
	}
	connection, err := amqp.Dial(ctx, "amqp://127.0.0.1:"+port, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("me", "x")})
	if err != nil {
		return err
	}
	defer connection.Close()
	if command == "suite" {
		return suite(ctx, connection)
	}
	session, err := connection.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	return forward(ctx, session, arguments[0], arguments[1:])
}
