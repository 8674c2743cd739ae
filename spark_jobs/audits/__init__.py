"""The audits: each a function from a pinned snapshot to a Result.

    ledger          every message that entered a queue has left it by name, once, or is there
      rules           what a message may do, and when books balance: for Spark's columns and numpy's arrays alike
      findings        what must agree within a segment
      ids             what follows from the order of ids
      tally           counting, judging, and finding what is wrong, by Spark
      statement       figures into sections
      opening         balances on disk: today's ledger needs nothing of last year's segments
      compare         against the running broker
      books           the ledger without Spark, for journals that one machine reads
    dead_letters    who died, where, why, and what became of the dead letters
      fates           what became of messages, across moves
      poison          what dies again and again
    expiry          what expired unread, how long it had waited, who set the expiration
    trace           one message's life across moves
      history         the records about a few messages, as sentences
    options         what part of the journal an audit looks at
    sieve, reading  scans that leave in the segments what nobody wants
    frames, tables  Spark's answers, and sections of a report

Spark reduces the journal to counts and to the few messages that something is told about; the rest is Arrow and Python
on the driver.  Every list in a result is capped, and says how many more there are.
"""
