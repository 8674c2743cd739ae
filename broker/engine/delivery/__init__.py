"""Delivery from queues to consumers: subscriptions, dispatch, redelivery, transactions."""
