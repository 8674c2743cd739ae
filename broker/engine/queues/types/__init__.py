"""Queues that are not plain: what they do otherwise.  A plain queue has no `Kind`, and costs nothing."""
