"""AMQP messages that an operator gives another body."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.sessions.amqp.format import AmqpFormat
from protocols.amqp.encode import encode
from protocols.amqp.message import (
    AMQP_VALUE,
    DATA,
    MESSAGE_ANNOTATIONS,
    Message,
    encode_annotations,
    encode_application_properties,
    encode_section,
)
from protocols.amqp.performatives import Properties
from protocols.amqp.types import Byte
from store.body import BodyReference, LargeBody

MAP, BYTES, TEXT = Byte(2), Byte(3), Byte(5)
FORMAT = AmqpFormat()


class Files:
    """Files of bodies that nobody can read now."""

    def held(self, reference: BodyReference) -> None:
        """Not counted."""

    def dropped(self, id: int) -> None:
        """Not counted."""

    def read(self, id: int, offset: int, nbytes: int) -> bytes:
        """Fails: an edit looks into no file."""
        raise AssertionError("a body's file was read")


@pytest.mark.parametrize(
    ("kind", "before", "content", "kind_after", "section"),
    [
        (TEXT, "text", b"mended", TEXT, AMQP_VALUE),
        (TEXT, "text", b"\xff", BYTES, DATA),
        (MAP, {"a": 1}, b"mended", BYTES, DATA),
        (BYTES, b"bytes", b"mended", BYTES, DATA),
    ],
)
def test_kinds_known_by_jms_stay_true(
    kind: Byte, before: object, content: bytes, kind_after: Byte, section: int
) -> None:
    noted = encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-jms-msg-type": kind, "x-opt-other": 7})
    head = noted + encode_application_properties({"color": "red"})
    after = Message(b"".join(FORMAT.refilled(head, encode_section(AMQP_VALUE, before), content)))
    assert after.message_annotations == {"x-opt-jms-msg-type": kind_after, "x-opt-other": 7}
    assert (after.application_properties, after.body()[0]) == ({"color": "red"}, section)


def test_a_new_body_is_not_encoded_as_the_old_one() -> None:
    properties = Properties(message_id="ID:1", content_type="text/plain", content_encoding="gzip")
    noted = encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-other": 7})
    head = noted + encode(properties) + encode_application_properties({"color": "red"})
    after = Message(FORMAT.refilled(head, encode_section(DATA, b"zipped"), b"mended")[0])
    assert after.properties == replace(properties, content_encoding=None)
    assert (after.message_annotations, after.application_properties) == ({"x-opt-other": 7}, {"color": "red"})


def test_a_large_text_of_jms_stays_a_text() -> None:
    large = LargeBody(Files(), BodyReference(1, 1 << 20, 0))
    head = encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-jms-msg-type": TEXT})
    assert FORMAT.refilled(head, large, b"mended") == (head, encode_section(AMQP_VALUE, "mended"))
    assert FORMAT.refilled(b"", large, b"mended") == (b"", encode_section(DATA, b"mended"))


@pytest.mark.parametrize(
    ("head", "id"),
    [
        (encode_application_properties({"_AMQ_DUPL_ID": "once"}), b"once"),
        (encode_application_properties({"_AMQ_DUPL_ID": b"once"}), b"once"),
        (encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-DUPL-ID": "once"}), b"once"),
        (encode_application_properties({"_AMQ_DUPL_ID": 7}), None),
        (encode_application_properties({"_AMQ_DUPL_ID": "once"})[:-1], None),
        (b"", None),
    ],
)
def test_the_id_of_a_message_that_is_sent_twice(head: bytes, id: bytes | None) -> None:
    assert FORMAT.duplicate_id(head) == id
