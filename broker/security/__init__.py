"""Authentication: users and their passwords, certificates, tokens, throttling of failed logins, the audit log."""
