"""Operators' verbs and views: create, change, delete; tasks, notifications, connections, the disk."""
