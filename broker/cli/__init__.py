"""The command line: `bartleby`, or `python -m broker`."""
