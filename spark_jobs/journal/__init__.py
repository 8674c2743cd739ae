"""The journal as columns: which segments there are, what lies in them, as Arrow batches.  No Spark below this package.

snapshot        the pinned list of a journal's segments; from `listing` (what lies somewhere) and `pinning` (which of
                it counts, what is absent)
segments        one of them: what is known of it, and reading it, wherever it has moved
files           where journals lie: local directories, object stores
walk            where the records of a segment are, and what of it is damaged; `offsets`: where each begins
scan, decode    segment after segment, as batches of columns
unfinished      the messages that a ledger must look at one by one, and how many the others are
schema          the columns of the views; `columns` makes them, `inspect` those of a segment as a row
layout          where the fields of a record are
"""
