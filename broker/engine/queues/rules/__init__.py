"""The rules of queues with special attributes.  A plain queue has `NO_RULES`, and pays nothing for them."""
