"""Who may come in: users and their passwords, certificates, failed logins, the audit log."""
