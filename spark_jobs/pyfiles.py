"""The code of the audits as a zip file, for executors that do not have it: `python -m spark_jobs.pyfiles FILE`.

It contains `spark_jobs` and `store`, the two packages of the audits.  Their dependencies must be installed where the
executors run: pyarrow, numpy and crc32c, which are compiled and cannot be loaded from a zip.

The same code always gives the same bytes.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

#: The packages of the audits.
PACKAGES: Final = ("spark_jobs", "store")

#: The default name of the file.
NAME: Final = "bartleby-audit.zip"

#: Where the packages are: the parent directory of this one, or the zip from which it was loaded.
ROOT: Final = Path(__file__).resolve().parents[1]

#: The earliest time that is possible in a zip: the code's own times do not matter.
_TIME: Final = (1980, 1, 1, 0, 0, 0)


def shipped() -> bool:
    """Whether this code itself was loaded from such a zip."""
    return ROOT.is_file()


def write(target: Path) -> None:
    """Write the zip, completely or not at all.  Raises OSError."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in _sources():
                entry = zipfile.ZipInfo(path.relative_to(ROOT).as_posix(), _TIME)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def packed() -> Iterator[Path]:
    """The zip as a temporary file, to send it."""
    with TemporaryDirectory() as directory:
        code = Path(directory) / NAME
        write(code)
        yield code


def _sources() -> list[Path]:
    """All files, including the template and the style of the reports, and the settings of Spark's log."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.*") if path.is_file())
    return sorted(path for path in files if path.suffix != ".pyc")


def main(arguments: list[str]) -> int:
    """The command line; returns the exit status, 2 for wrong arguments."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m spark_jobs.pyfiles FILE.zip\n")
        return 2
    write(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
