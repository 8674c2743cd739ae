"""From a queue to a consumer and back: subscriptions, dispatch, redelivery, transactions."""
