"""The journal as columns: which segments there are, what lies in them, as Arrow batches.  No Spark below this package.

    files, snapshot     where a journal lies, and the pinned list of its segments
    walk                where the records of a segment are, and what of it is damaged
    decode              a segment's records as batches
    movements           who entered and left which queue, combined within a few segments
    schema              the columns of these views

Below them: `layout` (where the fields of a record are), `offsets` (where records begin), `gather` and `columns` (from
fields to columns), `names` (of queues).
"""
