"""The pages of docs/ and the README: what they link to is there, and their closed lists are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.engine.model import message as header_names
from broker.offline.replaying import REASONS
from store.record import DeadLetterReason, RemovalReason

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

_FENCED = re.compile(r"^(```|~~~).*?^\1\s*$", re.M | re.S)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
_LINK = re.compile(r"!?\[(?:[^\]\\]|\\.)*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_DEFINED = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.M)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#* *$", re.M)
_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")


def links(text: str) -> list[str]:
    """Where a page links to, but for examples of code."""
    prose = _FENCED.sub("", text)
    plain = _CODE.sub(lambda found: "`" * len(found[0]), prose)
    return _LINK.findall(plain) + _DEFINED.findall(plain)


def anchors(text: str) -> set[str]:
    """The anchors of a page, as GitHub makes them of its headings."""
    found: set[str] = set()
    prose = _FENCED.sub("", text)
    for heading in _HEADING.findall(prose):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        number, unique = 0, slug
        while unique in found:
            number += 1
            unique = f"{slug}-{number}"
        found.add(unique)
    return found | set(_ANCHOR.findall(prose))


def broken(page: Path, text: str) -> list[str]:
    """The relative links of a page that lead nowhere."""
    wrong = []
    for link in links(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if path and not target.exists():
            wrong.append(link)
        elif anchor and target.suffix == ".md":
            there = text if target == page else target.read_text()
            if anchor not in anchors(there):
                wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_a_link_that_leads_nowhere_is_seen() -> None:
    page = ROOT / "docs" / "none.md"
    text = """# A `b` (c), d: e
## Twice
## Twice
[x](#a-b-c-d-e) [x](#twice-1) [x](stomp.md#send) [x](https://example.org/#nothing) `[x](#code)`

```
[x](#fenced)
# no-heading
```
[x](#twice-2) [x](stomp.md#nothing) [x](nowhere.md) [x](#no-heading)
[y]: nowhere.md#x
"""
    assert broken(page, text) == ["#twice-2", "stomp.md#nothing", "nowhere.md", "#no-heading", "nowhere.md#x"]


def test_the_journal_s_reasons_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "journal-format.md").read_text()
    numbers = "| " + " | ".join(str(reason.value) for reason in RemovalReason) + " |"
    words = "| " + " | ".join(reason.word for reason in RemovalReason) + " |"
    assert numbers in text
    assert words in text
    deaths = ", ".join(f"{reason.value} {reason.word}" for reason in DeadLetterReason)
    assert f"Reasons: {deaths}." in " ".join(text.split())


def test_the_ledger_s_equation_has_each_way_out() -> None:
    text = (ROOT / "docs" / "audits.md").read_text()
    ways = text.partition("    opening + from before + enqueued = ")[2].partition("+ with its queue + present")[0]
    assert [way.strip() for way in ways.split("+")] == [reason.word for reason in RemovalReason]


def test_a_replay_chooses_among_the_reasons_of_the_code() -> None:
    text = (ROOT / "docs" / "replay.md").read_text()
    row = text.partition("| `--reason` |")[2].partition("\n")[0]
    assert set(re.findall(r"`([a-z-]+)`", row)) == set(REASONS)


def test_the_headers_of_dead_letters_are_those_of_the_code() -> None:
    written = {value for name, value in vars(header_names).items() if name.startswith(("DL_", "ORIG_"))}
    text = (ROOT / "docs" / "dead-letters.md").read_text()
    table = text[text.index("| header | meaning |") :].partition("\n\n")[0]
    named = set(re.findall(r"`(_AMQ_(?:DL|ORIG)_[A-Z_]+)`", table))
    assert named == written
