"""What docs/api.md tells people to type works, and answers what the page shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.daemon import DaemonProcess, running

PAGE: Final = (Path(__file__).parents[1] / "docs" / "api.md").read_text("utf-8")

#: Commands, and what the last of them answers, if the page shows it.
EXAMPLES: Final = re.findall(r"^```sh\n(.*?)^```\n(?:\n```json\n(.*?)^```\n)?", PAGE, re.MULTILINE | re.DOTALL)

#: Ends what one block of commands prints.
END: Final = "=== end of block"


def shown(expected: Any, found: Any) -> bool:
    """Whether the page shows a part of what was answered."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(shown(value, found.get(name)) for name, value in expected.items())
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(shown, expected, found))
    return bool(expected == found)


def documents(text: str) -> list[Any]:
    """The JSON documents that stand one behind the other."""
    found, at, decoder = [], 0, json.JSONDecoder()
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with running(tmp_path_factory.mktemp("broker")) as one:
        yield one


@pytest.mark.skipif(shutil.which("curl") is None, reason="install curl")
def test_the_examples(broker: DaemonProcess) -> None:
    assert len(EXAMPLES) > 10
    script = "\n".join(f"{commands}\necho '{END}'" for commands, _ in EXAMPLES)
    script = script.replace("http://127.0.0.1:8161", f"http://127.0.0.1:{broker.ports['http']}")
    script = script.replace("./var/", f"{broker.data}/")
    done = subprocess.run(["sh", "-eu", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for (commands, expected), answer in zip(EXAMPLES, done.stdout.split(END), strict=False):
        if expected:
            assert shown(json.loads(expected), documents(answer)[-1]), f"{commands}\n{answer}"


def test_the_calls_are_those_of_the_api(broker: DaemonProcess) -> None:
    named = re.findall(r"^\| `([A-Z]+) (/[^`]*)` \|", PAGE, re.MULTILINE)
    assert len(named) > 25
    known = {
        (method.upper(), re.sub(r"\{\w+\}", "*", path))
        for path, methods in broker.get("openapi.json")["paths"].items()
        for method in methods
    }
    for method, path in named:
        assert (method, "/api/v1" + re.sub(r"\b(NAME|ID|WORD|ROUTE)\b", "*", path)) in known, f"{method} {path}"
