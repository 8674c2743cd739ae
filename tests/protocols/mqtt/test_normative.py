"""The table of normative statements is complete, and what it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.protocols.mqtt.normative import BROKER, CLIENT, STATEMENTS

HERE = Path(__file__).parent
TESTS = HERE.parents[1]

#: Where tests of the broker are that prove statements.
OF_THE_BROKER = ("broker/sessions/mqtt/test_*.py", "interop/test_mqtt_*.py")

#: Appendix B: the sections with statements, and their numbers; [MQTT-2.2.1-1] was withdrawn.
SECTIONS = {
    "1.5.4": 3, "1.5.5": 1, "1.5.7": 1,
    "2.1.3": 1, "2.2.1": 6, "2.2.2": 1,
    "3.1.0": 2, "3.1.2": 30, "3.1.3": 12, "3.1.4": 6,
    "3.2.0": 2, "3.2.2": 22,
    "3.3.1": 13, "3.3.2": 20, "3.3.4": 10,
    "3.4.2": 3, "3.5.2": 3, "3.6.1": 1, "3.6.2": 3, "3.7.2": 3,
    "3.8.1": 1, "3.8.3": 5, "3.8.4": 8, "3.9.2": 2, "3.9.3": 2,
    "3.10.1": 1, "3.10.3": 2, "3.10.4": 6, "3.11.2": 2, "3.11.3": 2,
    "3.12.4": 1, "3.14.0": 1, "3.14.1": 1, "3.14.2": 4, "3.14.4": 3, "3.15.1": 1, "3.15.2": 3,
    "4.1.0": 2, "4.2.0": 1, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2, "4.5.0": 2, "4.6.0": 6,
    "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6, "4.9.0": 3,
    "4.12.0": 7, "4.12.1": 2, "4.13.1": 1, "4.13.2": 1,
    "6.0.0": 4,
}  # fmt: skip


def test_every_statement_is_there() -> None:
    expected = {f"MQTT-{section}-{number}" for section, last in SECTIONS.items() for number in range(1, last + 1)}
    assert set(STATEMENTS) == expected - {"MQTT-2.2.1-1"}
    assert len(STATEMENTS) == 251


def functions(module: str) -> set[str]:
    """The tests of a module of this folder."""
    tree = ast.parse((HERE / f"{module}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_tests_that_prove_them_exist() -> None:
    proofs = {proof for _, proof in STATEMENTS.values()} - {BROKER, CLIENT}
    assert [
        proof for proof in sorted(proofs) if proof.partition("::")[2] not in functions(proof.partition("::")[0])
    ] == []


def named_by_tests_of_the_broker() -> set[str]:
    """The statements in the docstrings of tests of the broker."""
    found: set[str] = set()
    for pattern in OF_THE_BROKER:
        for path in TESTS.glob(pattern):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    found |= statements(ast.get_docstring(node) or "")
    return found


def statements(text: str) -> set[str]:
    """The statements that a text names, one by one or from one to another of the same section."""
    found: set[str] = set()
    for section, first, last in re.findall(r"\[MQTT-([\d.]+)-(\d+)\](?: to \[MQTT-[\d.]+-(\d+)\])?", text):
        found |= {f"MQTT-{section}-{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def test_duties_of_the_broker_are_proved_there() -> None:
    named = named_by_tests_of_the_broker()
    assert named <= set(STATEMENTS)
    assert [id for id, (_, proof) in STATEMENTS.items() if proof == BROKER and id not in named] == []


def test_cases_named_by_a_statement_are_entered() -> None:
    """A case of `test_rules` proves the statement that it is named by, whatever else does."""
    text = (HERE / "test_rules.py").read_text()
    named = set(re.findall(r'"(MQTT-[\d.]+-\d+)"', text))
    assert named <= set(STATEMENTS)
    assert [id for id in sorted(named) if STATEMENTS[id][1] in (BROKER, CLIENT)] == []


def test_statements_said_by_the_sources_exist() -> None:
    """What the codec's docstrings and errors cite: of 5.0, unless they say otherwise."""
    for path in sorted((HERE.parents[2] / "protocols" / "mqtt").glob("*.py")):
        for id, other in re.findall(
            r"(MQTT-\d+\.\d+\.\d+-\d+)(\]? of 3\.1\.1|\], \[MQTT-[\d.-]+\] of 3)?", path.read_text()
        ):
            assert other or id in STATEMENTS, f"{path.name}: {id}"
