"""The limits on a filter: any subscriber may send one, and it then runs once for every message."""

from __future__ import annotations

from typing import Final

CACHE_FILTERS_MAX: Final = 256
"""Compiled filters cached by text: more than the distinct selectors of a usual application; a hostile set of the
largest ones stays under 100 MiB."""

TEXT_RESULT_CHARS_MAX: Final = 65_536
"""The most characters of a `+` of texts: above any header, so that `p + p + ...` cannot multiply a large property."""

NUMBER_CHARS_MAX: Final = 64
"""Characters of a text read as a number: no 64-bit integer or double needs more, and longer ones cost time to read."""

NODES_PER_SEARCH: Final = 16
"""Nodes that a LIKE such as '%a_b%' counts beyond its own: 1.6 us for a `_` between two `%`, in a header of 16 KiB."""

TEXT_CHARS_MAX: Final = 4096
"""Characters of a filter. An SQL statement written by hand stays below; the parser's work grows with it."""

DEPTH_MAX: Final = 64
"""Levels of nesting, including parentheses. Evaluation recurses so deep; filters in use stay below ten."""

NODES_MAX: Final = 1024
"""Operators, names and constants: the cost of one evaluation (NODES_PER_MICROSECOND). A list of IN counts as one, a
search (NODES_PER_SEARCH) as sixteen."""

NODES_PER_MICROSECOND: Final = 5
"""Nodes that are evaluated in a microsecond, if all are: the middle of constants and comparisons of two properties."""
