"""Publishing: the only way in for messages, including what addresses do beside routing."""
