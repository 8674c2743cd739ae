"""Sessions over WebSocket."""
