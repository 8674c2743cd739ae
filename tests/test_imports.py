"""No module imports itself by way of others, be it only for types: each can be read without those above it.

import-linter's contracts (pyproject.toml) give the order of the packages; this holds for every single module.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

OURS = ("broker", "protocols", "spark_jobs", "store")


def imports(*packages: str) -> dict[str, AbstractSet[str]]:
    """What each module of these packages imports of them, at its beginning, in a function, or only for types."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circle(imports: Mapping[str, AbstractSet[str]]) -> list[str]:
    """The modules of a circle, each imported by the next; empty: there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circle(imports(*OURS)) == []


@pytest.mark.parametrize(
    "imported",
    [
        "from circular import one",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from circular.one import Name",
        "def later():\n    import circular.one",
    ],
)
def test_a_circle_is_seen(imported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "circular"
    package.mkdir()
    for name, text in {"__init__": "", "one": "import circular.two", "two": "", "three": imported}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert circle(imports("circular")) == []
    (package / "two.py").write_text("import circular.three")
    assert sorted(set(circle(imports("circular")))) == ["circular.one", "circular.three", "circular.two"]
