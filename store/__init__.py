"""The journal.  The engine calls `journal`, `log` stores the bytes, and `files` is the disk."""
