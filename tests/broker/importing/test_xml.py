"""Reading XML that may have been made to hurt the one who reads it."""

from __future__ import annotations

import pytest

from broker.importing import InvalidFile, translate, xml
from broker.importing.xml import XML_BYTES_MAX, read

BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE core [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<core>&b;</core>"""
EXTERNAL = b"""<?xml version="1.0"?>
<!DOCTYPE core [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<core><name>&x;</name></core>"""
INCLUDE = b"""<configuration xmlns:xi="http://www.w3.org/2001/XInclude">
<core>
  <xi:include href="my-address-settings.xml"/>
</core>
</configuration>"""


@pytest.mark.parametrize("data", [BOMB, EXTERNAL, b'<!DOCTYPE core SYSTEM "http://example.com/a.dtd"><core/>'])
def test_document_types_and_entities_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidFile, match="document type or entities"):
        read(data)


def test_xinclude_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidFile, match=r"line 3: .* XInclude: .*\(xmllint --xinclude"):
        translate(INCLUDE)


@pytest.mark.parametrize(
    "data", [b"", b"no xml", b"<core>", b"<core></other>", b"<core>\n<a b=1/></core>", b"\xff\xfe\x00"]
)
def test_a_file_that_is_no_xml_is_reported_with_its_line(data: bytes) -> None:
    with pytest.raises(InvalidFile, match=r"line [0-9]+: not XML"):
        read(data)


def test_a_file_may_have_its_size_and_not_a_byte_more() -> None:
    frame = b"<core><!---->" + b"</core>"
    comment = b"<core><!--" + b"a" * (XML_BYTES_MAX - len(frame)) + b"--></core>"
    assert len(comment) == XML_BYTES_MAX
    assert read(comment).name == "core"
    with pytest.raises(InvalidFile, match="more than 16 MiB"):
        read(comment + b"\n")


def test_elements_may_be_as_deep_as_the_limit_and_not_deeper() -> None:
    deep = xml.DEPTH_MAX
    assert read(b"<a>" * deep + b"</a>" * deep).name == "a"
    with pytest.raises(InvalidFile, match="deeper"):
        read(b"<a>" * (deep + 1) + b"</a>" * (deep + 1))
    assert len(read(b"<a>" + b"<b/>" * 4 + b"</a>", elements_max=5).children) == 4
    with pytest.raises(InvalidFile, match="more or deeper elements"):
        read(b"<a>" + b"<b/>" * 5 + b"</a>", elements_max=5)


def test_elements_know_name_line_text_and_attributes() -> None:
    root = read(b'<a xmlns="urn:x" xmlns:q="urn:q">\n <b c=" d " q:e="f"> g\n <h/> i </b>\n</a>')
    (b,) = root.children
    assert (root.namespace, b.name, b.line, b.text, b.attributes) == ("urn:x", "b", 2, "g\n  i", {"c": "d"})


def test_the_default_of_a_system_property_is_taken_and_known() -> None:
    (b, c) = read(b'<a><b x="${p:1}">${host:here}:${port:5}</b><c>${none}</c></a>').children
    assert (b.text, b.attributes, b.properties) == ("here:5", {"x": "1"}, ["p", "host", "port"])
    assert (c.text, c.properties) == ("${none}", [])


def test_another_root_is_told_what_is_wanted() -> None:
    with pytest.raises(InvalidFile, match=r"<web-app> is neither Artemis's broker\.xml"):
        translate(b"<web-app/>")
    with pytest.raises(InvalidFile, match="<configuration> is neither"):
        translate(b'<configuration xmlns="urn:hornetq"><paging-directory/></configuration>')
