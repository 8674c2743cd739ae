"""Parses other brokers' XML to elements that have their line, using nothing but the file itself.

1. Document types, entities and external references are refused by defusedxml.
2. XInclude is refused with a sentence, since the configuration would be incomplete.
3. Size, depth and number of elements are bounded.
4. `${name:default}` is replaced by its default, as in Artemis without that system property; the element records the
   name.  Without a default the text stays, and is refused where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler, feature_namespaces
from xml.sax.xmlreader import AttributesNSImpl, Locator

from defusedxml.common import DefusedXmlException
from defusedxml.expatreader import DefusedExpatParser

from broker.importing.files import InvalidFile

XML_BYTES_MAX: Final = 16 << 20
"""Bytes of a file: real ones have some tens of KiB; one with 100,000 addresses has 10 MiB."""
DEPTH_MAX: Final = 64
"""Nesting of elements: real files have 12 levels."""
ELEMENTS_MAX: Final = 1_000_000
"""Elements of a file: keeps its size in memory within some hundred MiB."""

_XINCLUDE: Final = "http://www.w3.org/2001/XInclude"
_PROPERTY: Final = re.compile(r"\$\{([^:{}]{1,255})(?::([^{}]*))?\}")


@dataclass(slots=True)
class Element:
    """An element: local name, attributes without a namespace, and its own stripped text."""

    name: str
    namespace: str
    line: int
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    children: list[Element] = field(default_factory=list)
    properties: list[str] = field(default_factory=list)
    """The names of system properties replaced by their defaults."""

    def all(self, name: str) -> Iterator[Element]:
        """The children of this name."""
        return (child for child in self.children if child.name == name)

    def find(self, name: str) -> Element | None:
        """The first child of this name."""
        return next(self.all(name), None)

    def below(self) -> Iterator[Element]:
        """All descendants, in the order of the file."""
        for child in self.children:
            yield child
            yield from child.below()

    def get(self, name: str) -> str | None:
        """An attribute, or the text of the child of this name: Artemis's files use either."""
        if name in self.attributes:
            return self.attributes[name]
        child = self.find(name)
        return None if child is None else child.text

    def replace_properties(self) -> None:
        """Replace properties by their defaults, in text and attributes."""
        for name, value in self.attributes.items():
            self.attributes[name] = self._replaced(value)
        self.text = self._replaced(self.text)

    def _replaced(self, text: str) -> str:
        def default(match: re.Match[str]) -> str:
            if match[2] is None:
                return match[0]
            self.properties.append(match[1])
            return match[2]

        return _PROPERTY.sub(default, text) if "${" in text else text


def read(data: bytes, *, elements_max: int = ELEMENTS_MAX) -> Element:
    """The root element.  Raises InvalidFile."""
    if len(data) > XML_BYTES_MAX:
        raise InvalidFile(f"the file has more than {XML_BYTES_MAX >> 20} MiB: no broker's configuration is that large")
    parser = DefusedExpatParser(forbid_dtd=True)
    parser.setFeature(feature_namespaces, True)
    tree = _Tree(parser, elements_max)
    parser.setContentHandler(tree)
    try:
        parser.feed(data)
        parser.close()
    except DefusedXmlException:
        raise InvalidFile(
            "the file has a document type or entities, which could fetch or multiply content: remove them"
        ) from None
    except SAXParseException as error:
        raise InvalidFile(f"line {error.getLineNumber()}: not XML: {error.getMessage()}: correct it there") from None
    assert tree.root is not None, "an XML file without a root is refused by the parser"
    return tree.root


class _Tree(ContentHandler):
    def __init__(self, parser: Locator, elements_max: int) -> None:
        super().__init__()
        self._elements_max = elements_max
        self._parser = parser
        self.root: Element | None = None
        self._open: list[Element] = []
        self._texts: list[list[str]] = []
        self._count = 0

    def startElementNS(self, name: tuple[str | None, str], qname: str | None, attrs: AttributesNSImpl) -> None:
        namespace, local = name
        line = self._parser.getLineNumber() or 0
        self._count += 1
        if len(self._open) >= DEPTH_MAX or self._count > self._elements_max:
            raise InvalidFile(f"line {line}: more or deeper elements than any broker's configuration has")
        if namespace == _XINCLUDE:
            raise InvalidFile(
                f"line {line}: the file includes others by XInclude: merge them first"
                " (xmllint --xinclude FILE > WHOLE), then import the whole"
            )
        element = Element(local, namespace or "", line)
        for (attribute_namespace, attribute), value in attrs.items():
            if attribute_namespace is None:
                element.attributes[attribute] = value.strip()
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)
        self._texts.append([])

    def characters(self, content: str) -> None:
        if self._texts:
            self._texts[-1].append(content)

    def endElementNS(self, name: tuple[str | None, str], qname: str | None) -> None:
        element = self._open.pop()
        element.text = "".join(self._texts.pop()).strip()
        element.replace_properties()
