"""The audits: each a function from a pinned snapshot to a Result.

    ledger          every message that entered a queue has left it by name, once, or is there
      rules           what a message may do, and when books balance
      queue_flows     the same as DataFrames: what was counted, what each message did, what is wrong
      statement       figures into sections
      opening         balances on disk: today's ledger needs nothing of last year's segments
      compare         against the running broker
    ledgers         the ledgers of several brokers, and what links passed from one to another
      passage         the rules of that, and the same as DataFrames
    dead_letters    who died, where, why, and what became of the dead letters
      outcomes        what became of messages, across moves
      poison          what dies again and again
    expiry          what expired unread, how long it had waited, who set the expiration
    trace           one message's life across moves
      history         the records about a few messages, as sentences
    options         what part of the journal an audit looks at
    reading         that part as data frames, all of them of the source `bartleby-journal`
    frames, tables  Spark's answers, and sections of a report

Spark reduces the journal to counts and to the few messages that something is told about; the rest is Arrow and Python
on the driver.  Every list in a result is capped, and says how many more there are.
"""
