"""The audits: each is a function from a pinned snapshot to a Result.

    ledger          every message that entered a queue left it once, for a recorded reason, or is there
      rules           what a message may do, and when the books balance
      queue_flows     the same as DataFrames: counts, what each message did, what is wrong
      statement       from figures to sections
      opening         balances on disk: today's ledger does not need last year's segments
      compare         comparison with the running broker
    ledgers         the ledgers of several brokers, and the messages that links transferred between them
      passage         the rules for these messages, and the same as DataFrames
    dead_letters    which messages died, where, why, and what happened to the dead letters
      outcomes        what happened to messages, across moves
      poison          messages that die repeatedly
    expiry          which messages expired unread, how long they had waited, what set the expiration
    trace           the history of one message across moves
      history         the records about a few messages, as sentences
    options         which part of the journal to audit
    reading         this part as data frames, read from the source `bartleby-journal`
    frames          Spark's results as small tables

Spark reduces the journal to counts and to the few messages that are reported individually; the rest is Arrow and Python
on the driver.  Every list in a result is limited, and says how many more entries there are.
"""
