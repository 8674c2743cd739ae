package main
import ("context"; amqp "github.com/Azure/go-amqp")
func suite(ctx context.Context, c *amqp.Conn) error { return nil }
