"""What everything else is made of: messages, names, patterns, settings, permissions, errors."""
