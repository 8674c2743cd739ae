"""The mark of tests that replace parts of modules that can be compiled: docs/performance.md, Compiled build."""

from __future__ import annotations

import pytest

from broker.build import COMPILED

#: For a test that subclasses a class, or replaces a constant, a function or a method, of which a compiled build makes
#: C: there it cannot be done, or is not noticed.
interpreted = pytest.mark.skipif(COMPILED, reason="replaces what a compiled build has built in")
