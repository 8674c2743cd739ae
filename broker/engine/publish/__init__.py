"""The one way in for messages, with what addresses do beside routing."""
