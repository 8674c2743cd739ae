"""Health, metrics and the operator's calls over HTTP: ordinary engine verbs, each request within one tick."""
