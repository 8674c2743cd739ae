"""AMQP 1.0: sessions and links, deliveries and transfers, transactions."""
