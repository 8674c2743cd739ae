"""Backlogs beyond memory: the paged tail of a queue.

A queue that holds more than its address may keep in memory has two parts, one behind the other at each priority:

    in memory       the backlog, as ever
    paged           the tail: of each message its id and the place of its record on disk, 20 to 28 bytes

New messages go to the tail when their address is full, or the tail has any: so order is kept.  When consumers have
nearly emptied the part in memory, the tail's first messages are read back and appended to it, a chunk at a time.

Rules:

1. A message in a tail is stored and ready, and nothing else: whatever has failed, is scheduled or is in delivery is in
   memory.  What comes back goes to memory too, and so before the tail.
2. It is this queue's alone.  A message of several queues is held once more in its segment for each tail that it is in,
   and each queue that reads it back makes a message of its own (`refs` 1).
3. No message of a lower priority is delivered while the tail has one of a higher: the backlog has a `floor`.
4. A consumer with a selector sees all of the tail before there is nothing for it: what it takes comes to memory, the
   rest stays.
5. What cannot be read stays in the tail, damaged: it is reported, counted, and passed over.  Only purging or deleting
   the queue removes it.
"""
