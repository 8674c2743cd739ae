"""What operators do and see: make, change, delete; notifications, connections, the disk."""
