"""What commands do to the journal of a broker that is stopped: compact it, export what it holds, import it."""
