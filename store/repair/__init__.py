"""Repairs a damaged journal: what is valid stays, what is lost is listed."""
