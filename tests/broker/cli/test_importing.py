"""`bartleby import` as an operator runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.broker.cli.harness import invoke
from tests.broker.importing.harness import ARTEMIS, HERE


def assert_accepted(file: Path) -> None:
    """The check of the configuration misses only the files of links."""
    result = invoke("config", "check", "--config", str(file))
    text = result.stderr.replace(f"bartleby: {file}: ", f"{file}: ")
    assert "Traceback" not in text
    assert [line for line in text.splitlines() if line.startswith(str(file)) and f"{file}: links." not in line] == []
    assert result.exit_code == 0 or f"{file}: links." in text


def test_the_file_and_the_report_go_where_they_are_told(tmp_path: Path) -> None:
    output, report = tmp_path / "broker.toml", tmp_path / "report.txt"
    result = invoke("import", str(HERE / "broker.xml"), "-o", str(output), "--report", str(report))
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"without counterpart: see {report}" in result.stderr
    assert "No counterpart" in report.read_text()
    assert_accepted(output)


@pytest.mark.parametrize("name", ["broker.xml", "activemq.xml", "mosquitto.conf"])
def test_the_configuration_check_accepts_what_comes_out(name: str, tmp_path: Path) -> None:
    output = tmp_path / "broker.toml"
    assert invoke("import", str(HERE / name), "-o", str(output)).exit_code == 0
    assert_accepted(output)


def test_without_options_it_prints_both(tmp_path: Path) -> None:
    result = invoke("import", str(HERE / "activemq.xml"))
    assert result.exit_code == 0
    assert result.stdout.startswith("# Made by `bartleby import`")
    assert "Taken over with a change" in result.stderr


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    output = tmp_path / "broker.toml"
    output.write_text("mine")
    result = invoke("import", str(HERE / "broker.xml"), "-o", str(output))
    assert (result.exit_code, output.read_text()) == (2, "mine")
    assert "exists: name another file" in result.stderr


def test_what_cannot_be_imported_is_2(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.xml"
    wrong.write_text("<web-app/>")
    assert "is neither Artemis's" in invoke("import", str(wrong)).stderr
    wrong = tmp_path / "wrong.conf"
    wrong.write_text("\n# a comment\nsomething else\n")
    assert f"{wrong}: line 3: something is not a setting of Mosquitto" in invoke("import", str(wrong)).stderr
    missing = invoke("import", str(tmp_path / "none.xml"))
    assert missing.exit_code == 2
    assert "No such file" in missing.stderr
    assert invoke("import", str(HERE / "broker.xml"), "-o", str(tmp_path / "no" / "dir")).exit_code == 2


def test_names_in_a_file_cannot_steer_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "broker.xml"
    file.write_bytes(ARTEMIS.replace(b'"news"', b'"ne\xc2\x9bws"'))
    result = invoke("import", str(file))
    assert result.exit_code == 0
    assert "\x9b" not in result.stderr


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomli_w", None)
    result = invoke("import", str(HERE / "broker.xml"))
    assert result.exit_code == 2
    assert result.stderr == (
        "bartleby: `bartleby import` needs packages that are not installed: tomli_w\n"
        "install the extra [import]: pip install '.[import]' in a copy of the sources, or 'FILE.whl[import]'\n"
    )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--link", "=amqp://b"], "--link =amqp://b: give each queue manager once, NAME, NAME=URL or NAME=LINK"),
        (["--link", "QM2", "--link", "QM2=amqp://b"], "give each queue manager once"),
        (["--link", "QM2=b:5672"], "--link QM2=b:5672: give scheme, host and port"),
        (["--link", "QM2=mqtt://b"], "queues are reached over AMQP: give a URL of amqp or amqps"),
    ],
)
def test_a_link_that_cannot_be_is_2(options: list[str], why: str, tmp_path: Path) -> None:
    table = tmp_path / "qrule.rul"
    table.write_text("ACTION(FWD) FWDQ(Q7) FWDQM(QM2)\n")
    result = invoke("import", str(table), *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr


def test_the_queue_managers_of_a_rules_table(tmp_path: Path) -> None:
    table = tmp_path / "qrule.rul"
    table.write_text("ACTION(FWD) FWDQ(Q7) FWDQM(QM2)\n")
    result = invoke("import", str(table), "--queue-manager", "QM1", "--link", "QM2=amqp://b:5672")
    assert result.exit_code == 0
    assert '[links.QM2.remote-queues."QM2.Q7"]' in result.stdout
    existing = invoke("import", str(table), "--link", "QM2=qm2")
    assert '[links.qm2.remote-queues."qm2.Q7"]' in existing.stdout
    assert "append it to a broker.toml that has the link qm2" in existing.stderr
    assert invoke("import", str(HERE / "broker.xml"), "--queue-manager", "QM1").exit_code == 2
