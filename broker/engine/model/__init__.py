"""The types the rest of the engine builds on: messages, names, patterns, settings, permissions, errors."""
