"""The journal.  `journal` is what the engine calls, `log` is where the bytes go, `files` is the disk."""
