"""matplotlib's SVG as an element of an HTML page.

matplotlib knows one set of colours, and the page has two (light and dark).  So charts are drawn in stand-in colours
that occur nowhere else, and each is replaced here by a CSS variable of the page.  Texts stay texts: in the page's font,
searched, copied and read aloud like the others.  Ids get the section's name in front, as several charts share a page.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree as ET

#: Series that have a colour of their own.
SERIES_MAX: Final = 8

INK: Final = "#010203"
LINES: Final = "#010204"
SERIES: Final = tuple(f"#0102{0x10 + n:02x}" for n in range(SERIES_MAX))

#: What the page makes of the stand-ins; style.py has the colours.
VARIABLES: Final = {
    INK: "var(--ink-2)",
    LINES: "var(--line)",
    **{colour: f"var(--s{n})" for n, colour in enumerate(SERIES, 1)},
}

_SVG: Final = "{http://www.w3.org/2000/svg}"
_LINK: Final = "{http://www.w3.org/1999/xlink}href"
_UNWANTED: Final = (f"{_SVG}metadata", f"{_SVG}style")  # a style would be one of the whole page
_REFERENCE: Final = re.compile(r"url\(#([^)]+)\)")
_FONT: Final = re.compile(r"font-family:[^;]*;? ?")
_FONT_IN_ONE: Final = re.compile(r"font: ([\d.]+px)[^;]*")


def fit_for_page(drawn: bytes, name: str, description: str) -> ET.Element:
    """The drawing as an element with a description for those who do not see it."""
    svg = ET.fromstring(drawn)
    used = {found for element in svg.iter() for value in element.attrib.values() for found in _REFERENCE.findall(value)}
    used |= {element.attrib[_LINK].removeprefix("#") for element in svg.iter() if _LINK in element.attrib}
    for parent in list(svg.iter()):
        for child in [child for child in parent if child.tag in _UNWANTED]:
            parent.remove(child)
    for element in svg.iter():
        element.tag = element.tag.removeprefix(_SVG)
        kept = {key: value for key, value in element.attrib.items() if key != "id" or value in used}
        element.attrib.clear()
        element.attrib.update(_attribute(key, value, name) for key, value in kept.items())
    view = svg.attrib["viewBox"]
    svg.attrib.clear()
    svg.attrib.update({"viewBox": view, "role": "img", "aria-label": description, "class": "chart"})
    return svg


def _attribute(key: str, value: str, name: str) -> tuple[str, str]:
    if key == "id":
        return key, f"{name}-{value}"
    if key == _LINK:
        return "href", f"#{name}-{value.removeprefix('#')}"
    value = _REFERENCE.sub(lambda found: f"url(#{name}-{found[1]})", " ".join(value.split()))
    value = _FONT_IN_ONE.sub(r"font-size: \1", _FONT.sub("", value))
    for colour, variable in VARIABLES.items():
        value = value.replace(colour, variable)
    return key, value
