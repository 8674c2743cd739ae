"""HTML as a tree: texts cannot become markup, as nothing is ever glued together.

`ElementTree` escapes what it writes.  Texts go through `text.clean` before they come here, if a client chose them: HTML
has no way to write most control characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as ET

Child = ET.Element | str | None


def element(tag: str, *children: Child, **attributes: str) -> ET.Element:
    """An element; None is no child.  `class_` is the attribute class, `data_label` is data-label."""
    made = ET.Element(tag, {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()})
    return add(made, children)


def add(parent: ET.Element, children: Iterable[Child]) -> ET.Element:
    """The element, with more children behind those that it has."""
    for child in children:
        if isinstance(child, str):
            _add_text(parent, child)
        elif child is not None:
            parent.append(child)
    return parent


def page(root: ET.Element) -> str:
    """The whole page."""
    return "<!DOCTYPE html>\n" + ET.tostring(root, "unicode", method="html") + "\n"


def _add_text(parent: ET.Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text
