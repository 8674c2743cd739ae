"""What is done with the journal beside writing it: the restart, cleaning of segments, jumps of the clock."""
