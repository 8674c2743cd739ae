"""The rules of queues with special attributes.  A plain queue has no `Kind`, and pays nothing for them."""
