"""Queues, addresses and consumers: how messages enter, where they wait, and how they leave.

The modules from the bottom up: none imports one further down this list, not even for its types.

    rules             what special attributes say of messages: verdicts, which know no queue
    address           a name, its settings, and what it holds; it knows no queue either
    backlog, grouped  the ready messages of a queue, by priority, and by group; `cursors` for consumers with selectors
    paging.tail       those that are only on disk
    queue             `Queue` and `Consumer`: one record, as each is half of the other
    bindings          which queues the messages of an address may enter
    ledger            what the engine says to the journal of messages
    pending           what waits until the journal is durable; `held_entry`: while one entry stays open
    schedule          what is due when
    room              everything about "full"
    registry          creates and deletes addresses, queues and diverts
    state             what the rooms above share
    removal           the only way out, each message by a reason; `settling` in steps
    paging.admit      puts messages into the tail
    arrival           the only way in; carries out what rules say
    paging.depage     reads the tail back
    displacing        what leaves for younger messages; `clearing`: what leaves with its queue, or by order

The way of a durable message: `arrival.enter` writes its record and counts it as landing.  Once that is on disk,
`arrival.land` asks the rules, and makes it ready: in the backlog, in the tail, or in the schedule.  `delivery` hands it
to a consumer, which holds it until it is acknowledged or returned.  Whatever ends it calls `removal.remove`.

What always holds, and is asserted where a step could break it:

1. A message on a queue is in one place (`queue` lists them).  It has one reference (`refs`) for each queue that has it
   in memory.  A queue's counts are those of its containers.
2. It leaves a queue once, by `remove`, with a reason; so messages added = messages left, by reason + messages there.
3. It is charged to one address, from when it enters memory until its last reference goes (`Room.charge`).
4. Nothing is ready before it is durable, if it must be, unless whoever may get it waits for a later record
   (`arrival.stored`).  So nothing leaves the broker that a crash could take back.
5. The journal hears only of messages that it has (`segment`), on durable queues.
6. An id is larger than those of all messages that came before, on any queue.  Of those of one priority that are ready
   the least id comes first.
7. Nothing here is done for each of 100,000 queues or messages at once: it is steps with a budget (`steps`).
"""
