"""Builds the wheel: the sources alone, or, where somebody asks for it, with the hot path compiled by mypyc as well.

    pip install .                          the sources: needs no compiler
    BARTLEBY_COMPILE=1 pip install .       the same sources, and extension modules made of some of them: needs gcc

Which modules, [tool.hatch.build.targets.wheel.hooks.custom] in pyproject.toml says; why these, docs/performance.md.
They become one shared library, so that calls among them are calls of C functions, and for each module a small one that
the import system finds before the source of the same name.  A Python that they were not made for does not find them,
and runs the sources.

Everything is made in a temporary directory.  In the tree of the sources there is never an extension module, which would
go on running when its source is edited.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ASKED: Final = "BARTLEBY_COMPILE"
SUFFIX: Final = sysconfig.get_config_var("EXT_SUFFIX")
#: The version matters: another one may compile other things in another way.
COMPILER: Final = ("mypy>=2.4,<2.5", "setuptools>=65")
#: Warnings of what mypyc generates concern nobody here; debugging information is half of the size.
MORE_FLAGS: Final = ("-g0", "-w")


class NotPossible(Exception):
    """The build cannot be done as it is asked for; the text says why."""


class CompilingHook(BuildHookInterface[Any]):
    """hatchling's view of it."""

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling: the compiler, and all that the sources import, for its types."""
        return [*COMPILER, *self.metadata.core.dependencies] if wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the extension modules, if they are wanted, and put them into the wheel."""
        if self.target_name != "wheel" or not wanted():
            return
        if version == "editable":
            raise NotPossible(f"an editable install runs the sources: unset {ASKED}, or install without --editable")
        self._made = Path(tempfile.mkdtemp(prefix="bartleby-compiled-"))
        for module in compile_modules(Path(self.root), sources_of(self.config["modules"]), self._made):
            build_data["force_include"][str(self._made / module)] = str(module)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written."""
        if hasattr(self, "_made"):
            shutil.rmtree(self._made)


def wanted() -> bool:
    """Whether the environment asks for compiled modules.  Raises NotPossible if it is not clear."""
    value = os.environ.get(ASKED, "0")
    if value not in ("0", "1"):
        raise NotPossible(f"{ASKED} is 1 (compile) or 0 (do not), not {value!r}")
    return value == "1"


def sources_of(modules: dict[str, list[str]]) -> list[str]:
    """The table of pyproject.toml, names of modules by folder, as paths."""
    return [f"{folder}/{name}.py" for folder, names in modules.items() for name in names]


def translate_modules(root: Path, sources: list[str], made: Path) -> list[Any]:
    """Makes C of the sources; the extensions, as setuptools describes them.  Exits with what mypyc cannot translate."""
    from mypyc.build import mypycify  # only installed where it is wanted

    with chdir(root):  # mypy finds modules, and mypyc names them, from there
        arguments = [f"--cache-dir={made / 'mypy'}", *sources]
        found: list[Any] = mypycify(arguments, multi_file=True, group_name="bartleby", target_dir=str(made / "c"))
    return found


def compile_modules(root: Path, sources: list[str], made: Path) -> list[Path]:
    """Compiles the sources, paths relative to `root`; the paths of the extensions, relative to `made`.

    Raises NotPossible without a C compiler.
    """
    gcc = shlex.split(sysconfig.get_config_var("CC"))
    if shutil.which(gcc[0]) is None:
        raise NotPossible(f"{ASKED}=1 needs a C compiler, and there is no {gcc[0]}: install it, or unset {ASKED}")
    extensions = translate_modules(root, sources, made)
    flags = shlex.split(f"{sysconfig.get_config_var('CFLAGS')} {sysconfig.get_config_var('CCSHARED')}")
    include = sysconfig.get_path("include")
    paths = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def compiled(source: str, directories: list[str]) -> str:
            result = f"{source}.o" if Path(source).is_relative_to(made) else str(made / f"{Path(source).name}.o")
            search = [f"-I{directory}" for directory in (*directories, include)]
            _run([*gcc, *flags, *MORE_FLAGS, *search, "-c", source, "-o", result])
            return result

        begun = [
            (extension.name, [pool.submit(compiled, source, extension.include_dirs) for source in extension.sources])
            for extension in extensions
        ]
        for name, objects in begun:
            path = Path(*name.split(".")).with_suffix(SUFFIX)
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            linker = shlex.split(sysconfig.get_config_var("LDSHARED"))
            _run([*linker, *(one.result() for one in objects), "-s", "-o", str(made / path)])
            paths.append(path)
    return paths


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotPossible(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")
