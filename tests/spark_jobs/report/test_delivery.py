"""A result in each format, to standard output and to a path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_jobs.report.delivery import FORMATS, TO_A_PATH, Delivery
from tests.spark_jobs.report.samples import ALL, HOSTILE, ledger


def test_a_table_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    Delivery("table", None).deliver(ledger())
    out, err = capsys.readouterr()
    assert out.startswith("Ledger: BALANCED\n")
    assert err == ""


def test_json_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    Delivery("json", None).deliver(ledger())
    out, err = capsys.readouterr()
    assert json.loads(out)["verdict"] == "balanced"
    assert err == ""


@pytest.mark.parametrize(
    ("format", "begins"), [("table", "Ledger: VIOLATED"), ("json", '{\n  "format"'), ("html", "<!DOCTYPE html>")]
)
def test_a_file(format: str, begins: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result"
    Delivery(format, path).check()
    Delivery(format, path).deliver(ALL["violated"])
    assert path.read_text("utf-8").startswith(begins)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0].startswith("Ledger: VIOLATED. The books do not balance.")
    assert err.splitlines()[-1] == f"written: {path}"


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_directory(format: str, tmp_path: Path) -> None:
    path = tmp_path / "result"
    Delivery(format, path).check()
    Delivery(format, path).deliver(ledger())
    assert {entry.name for entry in path.iterdir()} == {
        "manifest.json",
        *(f"{section.name}.{format}" for section in ledger().sections),
    }


def test_text_about_a_file_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Delivery("json", tmp_path / "result").deliver(ALL["hostile"])
    err = capsys.readouterr().err
    assert HOSTILE not in err
    assert all(line.isprintable() for line in err.split("\n"))


def test_every_format_is_known() -> None:
    assert set(TO_A_PATH) < set(FORMATS)
