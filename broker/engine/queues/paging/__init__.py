"""Paging: backlogs larger than memory, in the tail of a queue.

A queue that holds more than its address may keep in memory has two parts, one behind the other at each priority:

    in memory       the backlog
    paged           the tail: for each message its id and the place of its record on disk, 20 to 28 bytes

New messages go to the tail if their address is full or the tail is not empty, which preserves the order.  When
consumers have nearly emptied the part in memory, the tail's first messages are read back and appended to it, a chunk at
a time.

Rules:

1. A message in a tail is stored, and ready or scheduled: those in delivery are in memory.  Returned messages go to
   memory too, and so before the tail.
2. A tail's message belongs to this queue alone.  A message of several queues is held once more in its segment for each
   tail that it is in, and each queue that reads it back makes a message of its own (`refs` 1).
3. No message of a lower priority is delivered while the tail has one of a higher: the backlog has a `floor`.
4. A consumer with a selector is matched against the whole tail: messages that match are brought to memory, the rest
   stays.
5. Messages that cannot be read stay in the tail, as damaged: they are reported, counted, and skipped.  Only purging or
   deleting the queue removes them.
6. Scheduled messages, and those that wait for redelivery, are rows of chunks of their own, which have no part in the
   order.  A message in memory can go back to disk if the place of its record is known, as it was read from there
   (`PagedMessage`); the others fitted into memory when they came.  Those that are due are read, or, while memory is
   full, become rows of the tail, unread.
"""
