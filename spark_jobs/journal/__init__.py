"""The journal as columns: its segments and their contents, as Arrow batches.  This package does not use Spark.

snapshot        the pinned list of a journal's segments; made from `listing` (what exists) and `pinning` (which
                copies count, what is absent)
segments        a segment: what is known about it, and reading it, wherever it has moved
files           where journals are: local directories, object stores
walk            where the records of a segment are, and its damage; `offsets`: where each record begins
scan, decode    segment after segment, as batches of columns
unfinished      the messages that a ledger must examine individually, and the number of the others
schema          the columns of the views; `columns` builds them, `inspect` the row of a segment
layout          where the fields of a record are
"""
