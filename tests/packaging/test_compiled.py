"""hatch_build.py: what BARTLEBY_COMPILE asks for, short of compiling everything (make test-compiled)."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hatchling.metadata.core import ProjectMetadata

from broker.build import COMPILED, VERSION_SHOWN, compiled
from hatch_build import ASKED, CompilingHook, NotPossible, compile_modules, sources_of, translate_modules, wanted
from tests.support import tidy

ROOT: Final = Path(__file__).parents[2]
#: What Python was compiled with, and compiles its extensions with.
COMPILER: Final[str] = sysconfig.get_config_var("CC").split()[0]
TARGETS: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
    "targets"
]
CONFIG: Final[dict[str, Any]] = TARGETS["wheel"]["hooks"]["custom"]
TINY: Final = """
from __future__ import annotations

class Tiny:
    __slots__ = ("words",)

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def longest(self) -> int:
        return max(len(word) for word in self.words)
"""


@pytest.fixture
def hook(tmp_path: Path) -> CompilingHook:
    nothing: Any = None
    metadata = ProjectMetadata(str(ROOT), nothing)
    return CompilingHook(str(ROOT), CONFIG, nothing, metadata, str(tmp_path), "wheel")


def test_the_modules_are_there_and_named_once() -> None:
    sources = sources_of(CONFIG["modules"])
    assert [source for source in sources if not (ROOT / source).is_file()] == []
    assert len(sources) == len(set(sources))


@pytest.mark.parametrize("source", sources_of(CONFIG["modules"]))
def test_an_exception_has_a_name_of_its_own(source: str) -> None:
    """mypyc gives a variable one type in a function: another class under the same name is a TypeError at run time."""
    for function in ast.walk(ast.parse((ROOT / source).read_text())):
        if isinstance(function, ast.FunctionDef):
            caught: dict[str, set[str]] = {}
            for handler in ast.walk(function):
                if isinstance(handler, ast.ExceptHandler) and handler.name and handler.type:
                    caught.setdefault(handler.name, set()).add(ast.unparse(handler.type))
            assert [name for name, classes in caught.items() if len(classes) > 1] == [], function.name


def compiled_classes() -> list[ast.ClassDef]:
    """The classes of all compiled modules."""
    trees = [ast.parse((ROOT / source).read_text()) for source in sources_of(CONFIG["modules"])]
    return [each for tree in trees for each in tree.body if isinstance(each, ast.ClassDef)]


def is_dataclass(each: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(mark) for mark in each.decorator_list)


def bases(each: ast.ClassDef) -> list[str]:
    """The names of its base classes, without their parameters."""
    return [ast.unparse(base).partition("[")[0] for base in each.bases]


def test_no_dataclass_inherits_fields() -> None:
    """mypyc shows the garbage collector such fields twice: what they refer to is never collected, nor its cycles."""
    classes = [each for each in compiled_classes() if is_dataclass(each)]
    fields = {
        each.name: {ast.unparse(line.target) for line in each.body if isinstance(line, ast.AnnAssign)}
        for each in classes
    }
    inherited = [each.name for each in classes if any(fields.get(base) for base in bases(each))]
    assert inherited == [], "a plain class with __slots__ does"


def test_no_dataclass_inherits_a_constructor() -> None:
    """mypyc calls it with the fields of the dataclass, which no C compiler takes."""
    classes = compiled_classes()
    built = {
        each.name
        for each in classes
        if any(isinstance(line, ast.FunctionDef) and line.name == "__init__" for line in each.body)
    }
    inheriting = [each.name for each in classes if is_dataclass(each) and built.intersection(bases(each))]
    assert inheriting == [], "a plain class with __slots__ does"


def test_no_field_of_a_dataclass_is_any_object() -> None:
    """mypyc looks for the name `object` in the module, which then cannot be imported."""
    fields = [
        f"{each.name}.{ast.unparse(line.target)}"
        for each in compiled_classes()
        if is_dataclass(each)
        for line in each.body
        if isinstance(line, ast.AnnAssign) and "object" in ast.unparse(line.annotation).split(" | ")
    ]
    assert fields == [], "a type of one's own does"


@pytest.mark.slow
def test_the_modules_can_be_compiled(tmp_path: Path) -> None:
    """As far as it depends on them: what mypyc makes of them, C compilers take (make test-compiled)."""
    sources = sources_of(CONFIG["modules"])
    made = translate_modules(ROOT, sources, tmp_path)
    assert len(made) == len(sources) + 1, "each module, and what they share"


def test_whoever_is_not_asked_needs_no_compiler(hook: CompilingHook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for value in ("", "0"):
        monkeypatch.setenv(ASKED, value) if value else monkeypatch.delenv(ASKED, raising=False)
        assert hook.dependencies() == []
        data: dict[str, Any] = {}
        hook.initialize("standard", data)
        hook.finalize("standard", data, "")
        assert data == {}


def test_the_build_needs_the_compiler_and_what_the_sources_import(
    hook: CompilingHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ASKED, "1")
    names = "\n".join(hook.dependencies())
    assert all(name in names for name in ("mypy", "setuptools", "crc32c", "pydantic"))


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda hook: hook.initialize("editable", {}), "install without --editable"),
        (lambda hook: compile_modules(ROOT, ["store/record.py"], Path("nowhere")), "needs a C compiler"),
    ],
)
def test_an_impossible_build_is_reported(
    hook: CompilingHook, monkeypatch: pytest.MonkeyPatch, ask: Callable[[CompilingHook], object], complaint: str
) -> None:
    monkeypatch.setenv(ASKED, "1")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotPossible, match=complaint):
        ask(hook)


def test_it_is_asked_for_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASKED, "yes")
    with pytest.raises(NotPossible, match=r"is 1 \(compile\) or 0"):
        wanted()


def test_which_form_runs_is_known() -> None:
    assert (compiled("json"), compiled("crc32c._crc32c")) == (False, True)
    assert ("(compiled)" in VERSION_SHOWN) is COMPILED


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no {COMPILER}: apt-get install gcc")
def test_a_module_is_compiled_beside_its_source_and_nothing_is_left_there(tmp_path: Path) -> None:
    root, made = tmp_path / "root", tmp_path / "made"
    (root / "words").mkdir(parents=True)
    (root / "words" / "__init__.py").touch()
    (root / "words" / "tiny.py").write_text(TINY)
    made.mkdir()
    paths = compile_modules(root, ["words/tiny.py"], made)
    assert sorted(path.name.split(".")[0] for path in paths) == ["bartleby__mypyc", "tiny"]
    assert sorted(path.name for path in root.rglob("*")) == ["__init__.py", "tiny.py", "words"]
    for path in paths:
        shutil.copy(made / path, root / path)
    program = "from words import tiny; print(tiny.__file__.rpartition('.')[2], tiny.Tiny(['a', 'bcd']).longest())"
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "so 3\n"


def test_no_class_is_compiled_and_its_base_is_not_or_the_other_way_round() -> None:
    """Either ends the start of a compiled build.  Protocols are no bases to mypyc."""
    sources = set(sources_of(CONFIG["modules"]))
    wrong = []
    for source in map(tidy.source, tidy.paths("broker", "protocols", "spark_jobs", "store")):
        path, tree = source.path, source.tree
        origins = {
            name.asname or name.name: f"{node.module.replace('.', '/')}.py"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module is not None
            for name in node.names
        }
        for node in ast.walk(tree):
            names = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
            for base in names if "Protocol" not in names else ():
                origin = origins.get(base.partition("[")[0], path)
                if (ROOT / origin).is_file() and (origin in sources) != (path in sources):
                    wrong.append(f"{path}: {base} of {origin}")
    assert wrong == []
