"""Work on the journal of a stopped broker: compact it, export its contents, import an export."""
