"""The wheel carries what tells type checkers that the packages have types (PEP 561)."""

from __future__ import annotations

import pytest

from tests.packaging.project import PYPROJECT, ROOT


@pytest.mark.parametrize("package", PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
def test_a_package_says_that_it_has_types(package: str) -> None:
    assert (ROOT / package / "py.typed").read_bytes() == b""
