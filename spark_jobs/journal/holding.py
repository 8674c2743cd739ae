"""Segments that can be read for as long as an audit lasts, whatever the broker does with them meanwhile.

A broker under load removes segments all the time, and an audit begins to read some seconds after it has seen which
there are.  So it opens them when it sees them: a file that is open is there until it is closed.  Spark's workers on the
same machine find it below /proc, among the open files of the process that holds it.

Without that (on another machine or system) a segment that goes is a segment that is missing; with retention it has
only moved, and is found.  What is held takes its place on disk until it is let go.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from spark_jobs.journal import files
from spark_jobs.journal.segments import SegmentRef, Vanished, places_of

#: Open files that are left to everything else: Java's are another process's.
OTHERS: Final = 256


class Held(ExitStack):
    """Open segments; closed at the end."""

    def hold(self, refs: Sequence[SegmentRef]) -> tuple[list[SegmentRef], int]:
        """These and no others.  Returns them with where they are held, and how many are not, for lack of open files.

        Raises Vanished if one is there no more.
        """
        self.close()
        local = [ref for ref in refs if files.is_local(ref.uri)]
        room = files.room_for(len(local) + OTHERS) - OTHERS
        held = {ref.number: self._open(ref) for ref in local[: max(room, 0)]}
        return [replace(ref, held=held.get(ref.number, "")) for ref in refs], len(local) - len(held)

    def _open(self, ref: SegmentRef) -> str:
        for place in places_of(ref):
            try:
                file = files.keep_open(place)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in (errno.EIO, errno.EACCES):  # reading it will tell
                    raise
                return ""
            return self.enter_context(file).place
        raise Vanished(f"{ref.uri}: the segment is no longer there")
