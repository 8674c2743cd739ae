"""The replicated log: entries are durable in a database with a standby, and copied to a local directory."""
