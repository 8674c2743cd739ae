"""A message's trail: its records found by index or by reading, as steps, as sentences."""
