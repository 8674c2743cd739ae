"""What audits cost: a generated journal with known totals, and how fast it is read: `python -m bench.audit --help`."""
