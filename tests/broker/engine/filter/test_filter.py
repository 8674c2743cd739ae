"""What filters mean: each line of the reference (Artemis semantics 4.1-4.3) is a line here."""

from __future__ import annotations

import logging

import pytest

from broker.engine.filter import Filter, InvalidFilter, Value, compile_filter

MESSAGE: dict[str, Value] = {
    "name": "James",
    "rank": 123,
    "big": 1 << 40,
    "ratio": 123.0,
    "half": 0.5,
    "flag": True,
    "off": False,
    "raw": b"James",
    "five": "5",
    "five_and_a_half": "5.5",
    "long_and_one": "9223372036854775808",
    "quote": "'In God'",
    "under": "_foo",
    "my-prop": "hyphen",
    'odd"name': 1,
    "a.b": 2,
    "AMQPriority": 3,
    "AMQDurable": "DURABLE",
}


def compiled(text: str) -> Filter:
    result = compile_filter(text)
    assert result is not None
    return result


def check_three_valued(text: str, expected: bool | None) -> None:
    """Unknown shows in that neither the condition nor its negation is true."""
    assert compiled(text).matches(MESSAGE) is (expected is True)
    assert compiled(f"NOT ({text})").matches(MESSAGE) is (expected is False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # missing properties: unknown, and the quirks of `=`
        ("gone = 'x'", None),
        ("gone <> 'x'", None),
        ("gone > 0", None),
        ("gone < 0", None),
        ("0 < gone", None),
        ("gone LIKE 'x'", None),
        ("gone NOT LIKE 'x'", None),
        ("gone IN ('x')", None),
        ("gone NOT IN ('x')", None),
        ("gone BETWEEN 1 AND 2", None),
        ("gone NOT BETWEEN 1 AND 2", None),
        ("rank BETWEEN gone AND 2", False),
        ("rank BETWEEN gone AND 200", None),
        ("rank NOT BETWEEN gone AND 2", True),
        ("gone", None),
        ("gone + 1 = 1", None),
        ("-gone = 1", None),
        ("'x' = gone", False),
        ("'x' <> gone", True),
        ("gone = lost", True),
        ("gone <> lost", False),
        ("gone IS NULL OR gone <> 'x'", True),
        ("gone IS NULL", True),
        ("gone IS NOT NULL", False),
        ("name IS NULL", False),
        ("name IS NOT NULL", True),
        ("NULL", None),
        # NOT binds tightest
        ("NOT name = 'James'", False),
        ("NOT flag = TRUE", False),
        ("NOT flag", False),
        ("NOT off AND flag", True),
        # logic with unknown
        ("flag AND gone", None),
        ("gone AND flag", None),
        ("off AND gone", False),
        ("gone AND off", False),
        ("flag OR gone", True),
        ("gone OR flag", True),
        ("off OR gone", None),
        ("gone OR off", None),
        ("flag OR off AND off", True),
        ("(flag OR off) AND off", False),
        # booleans
        ("flag", True),
        ("off", False),
        ("name", False),
        ("rank", False),
        ("flag = TRUE", True),
        ("flag = false", False),
        ("TRUE", True),
        ("FALSE", False),
        ("flag = 1", False),
        ("flag = 'true'", False),
        ("flag < 1", False),
        ("flag >= off", False),
        # unlike kinds are neither equal nor ordered
        ("five = 5", False),
        ("five <> 5", True),
        ("rank = '123'", False),
        ("name < five", False),
        ("name >= name", False),
        ("name > 1", False),
        ("raw = 'James'", False),
        ("raw = raw", False),
        ("raw > 1", False),
        # numbers
        ("rank = 123", True),
        ("rank = 123.0", True),
        ("ratio = 123", True),
        ("rank = ratio", True),
        ("rank < big", True),
        ("half < 1", True),
        ("rank >= 123 AND rank <= 123", True),
        ("rank <> 124", True),
        ("rank + 2 = 125", True),
        ("rank - 2 * 3 = 117", True),
        ("(rank - 2) * 3 = 363", True),
        ("rank / 2 = 61.5", True),
        ("7 / 2 = 3.5", True),
        ("rank % 10 = 3", True),
        ("-rank % 10 = -3", True),
        ("-rank = -123", True),
        ("- - rank = 123", True),
        ("+rank = 123", True),
        ("1 / 0 > 1e308", True),
        ("-1 / 0 < -1e308", True),
        ("1 % 0 = 1 % 0", False),
        ("0 / 0 = 0 / 0", False),
        ("9223372036854775807 + 1 = -9223372036854775808", True),
        ("9007199254740993 = 9007199254740992.0", True),  # promoted to double, where they are one
        ("name + '!' = 'James!'", True),
        ("name + 1 + half = 'James10.5'", True),
        ("name + flag = 'Jamestrue'", True),
        ("-name IS NULL", True),
        # literals
        ("rank = 0x7B", True),
        ("rank = 0X7b", True),
        ("rank = 0173", True),
        ("rank = 123L", True),
        ("rank = 1.23e2", True),
        ("rank = 1.23E+2", True),
        ("rank = 12300e-2", True),
        ("rank = 123.", True),
        ("half = .5", True),
        ("half = .5e0", True),
        ("quote = '''In God'''", True),
        # LIKE
        ("name LIKE 'J%'", True),
        ("name LIKE '%mes'", True),
        ("name LIKE 'J_mes'", True),
        ("name LIKE 'J_es'", False),
        ("name LIKE '%'", True),
        ("name LIKE 'james'", False),
        ("name NOT LIKE 'X%'", True),
        ("rank LIKE '1%'", False),
        ("rank NOT LIKE '1%'", True),
        ("under LIKE '!_%' ESCAPE '!'", True),
        ("name LIKE '!_%' ESCAPE '!'", False),
        ("name LIKE 'Ja!mes' ESCAPE '!'", False),
        ("'Ja!mes' LIKE 'Ja!mes' ESCAPE '!'", True),
        ("'a!' LIKE 'a!!' ESCAPE '!'", True),
        ("'x_' LIKE '%%_' ESCAPE '%'", False),
        ("'%_' LIKE '%%_' ESCAPE '%'", True),
        # IN, BETWEEN
        ("name IN ('Bob', 'James')", True),
        ("name IN ('Bob')", False),
        ("name NOT IN ('Bob')", True),
        ("name NOT IN ('James')", False),
        ("rank IN ('123')", None),
        ("rank NOT IN ('123')", None),
        ("rank BETWEEN 123 AND 150", True),
        ("rank BETWEEN 10 AND 122", False),
        ("rank NOT BETWEEN 10 AND 122", True),
        ("rank BETWEEN 1 AND 200 AND flag", True),
        ("name BETWEEN 1 AND 2", False),
        ("name NOT BETWEEN 1 AND 2", False),
        # names, comments, keywords
        ("\"my-prop\" = 'hyphen'", True),
        ('"odd""name" = 1', True),
        ('"a.b" = 2', True),
        ("nAME IS NULL", True),
        ("rank is not null aNd flag", True),
        ("rank /* the ** rank */ = 123", True),
        ("-- first\nrank = 123", True),
        ("innings IS NULL", True),
        ("AMQPriority = 3 AND name='James'", True),
        ("AMQDurable = 'DURABLE'", True),
        # a chain of equalities goes from the left
        ("rank = 123 = TRUE", True),
        ("rank <> 123 = FALSE", True),
    ],
)
def test_meaning(text: str, expected: bool | None) -> None:
    check_three_valued(text, expected)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_line_comment_ends_with_the_line_or_the_text(end: str) -> None:
    assert compiled(f"rank = 123 -- and flag = false{end}").matches(MESSAGE)
    assert not compiled(f"rank = 123 -- and{end or chr(10)} AND flag = false").matches(MESSAGE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("five = 5", True),
        ("5 = five", True),
        ("five <> 6", True),
        ("five_and_a_half > 5", True),
        ("five_and_a_half = 5.5", True),
        ("five BETWEEN 1 AND 9", True),
        ("five * 2 = 10", True),
        ("five_and_a_half * 2 = 11", True),
        ("five + 3 = '53'", True),
        ("3 + five = 8", True),
        ("name > 5", False),
        ("name = 5", False),
        ("flag = 'TRUE'", True),
        ("off = name", True),
        ("five < five_and_a_half", False),
        ("name = 'James'", True),
        ("five = '5'", True),
        ("-five IS NULL", True),
        ("'9223372036854775807' = 9223372036854775807", True),
        ("0 < long_and_one", False),
        ("' 5' = 5", False),
        ("'nan' = 5", False),
        ("'5_0' = 50", False),
    ],
)
def test_text_meets_numbers_with_the_prefix(text: str, expected: bool) -> None:
    prefix = "convert_string_expressions:"
    assert compiled(prefix + text).matches(MESSAGE) is expected
    assert compiled(f"{prefix}no_hyphenated_props:{text}").matches(MESSAGE) is expected
    plain = compiled(f"{prefix}no_{prefix}{text}")
    assert plain.matches(MESSAGE) is compiled(text).matches(MESSAGE)


def test_hyphens_belong_to_names_with_the_prefix() -> None:
    assert compiled("hyphenated_props:my-prop = 'hyphen'").matches(MESSAGE)
    assert not compiled("hyphenated_props:no_hyphenated_props:my-prop = 'hyphen'").matches(MESSAGE)
    assert not compiled("my-prop = 'hyphen'").matches(MESSAGE)


@pytest.mark.parametrize("text", ["", " ", "\t\r\n "])
def test_blank_text_filters_nothing(text: str) -> None:
    assert compile_filter(text) is None


@pytest.mark.parametrize(
    "text", ["name * 2 = 1", "flag + 1 = 2", "raw - 1 = 0", "name + raw = 'x'", "five + 1 - 1 = 5"]
)
def test_a_message_without_an_answer_does_not_match(text: str, caplog: pytest.LogCaptureFixture) -> None:
    failing = compiled(text)
    negated = compiled(f"NOT ({text})")
    with caplog.at_level(logging.WARNING):
        assert [failing.matches(MESSAGE), failing.matches(MESSAGE), negated.matches(MESSAGE)] == [False] * 3
    assert failing.failures == 2
    assert len(caplog.records) == 2, "each filter tells of its first failure only"


def test_a_decided_condition_is_not_evaluated_further() -> None:
    assert compiled("flag OR name * 2 = 1").matches(MESSAGE)
    assert compiled("NOT (off AND name * 2 = 1)").matches(MESSAGE)
    assert compiled("NOT (rank BETWEEN 200 AND name * 2)").matches(MESSAGE)


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("3+5", 0, "condition"),
        ("'red'", 0, "condition"),
        ("flag AND 3+5", 9, "condition"),
        ("NOT 'red'", 4, "condition"),
        ("=TEST 'test'", 0, "unexpected '='"),
        ("a = b foo AND c", 6, "unexpected 'foo'"),
        ("a = 1 AMD b = 2", 6, "unexpected 'AMD'"),
        ("a =", 3, "ends too early"),
        ("/* only */", 10, "ends too early"),
        ("(a = 1", 6, "ends too early"),
        ("a = 1)", 5, "unexpected ')'"),
        ("a = 'x", 4, "not closed"),
        ('a = "x', 4, "not closed"),
        ("a != 1", 2, "<>"),
        ("a == 1", 3, "unexpected '='"),
        ("a.b = 1", 1, '"quotes"'),
        ("größe = 1", 2, '"quotes"'),
        ("a /* b", 2, "not closed by */"),
        ("in = 1", 0, "unexpected 'in'"),
        ("a = NULL", 4, "IS NULL"),
        ("NULL = a", 0, "IS NULL"),
        ("a <> NULL", 5, "IS NULL"),
        ("TRUE = 'x'", 7, "cannot be compared"),
        ("a < 'x'", 4, "no order"),
        ("'x' >= a", 0, "no order"),
        ("a > TRUE", 4, "no order"),
        ("a < b < c", 0, "no order"),
        ("a BETWEEN 'a' AND 'b'", 10, "no order"),
        ("a IN (1, 2)", 6, "unexpected '1'"),
        ("a IN ()", 6, "unexpected ')'"),
        ("'a' IN ('a')", 0, "name on its left"),
        ("a LIKE b", 7, "unexpected 'b'"),
        ("a LIKE 'b' ESCAPE ''", 18, "one character"),
        ("a LIKE 'b' ESCAPE '!!'", 18, "one character"),
        ("a = 09", 5, "unexpected '9'"),
        ("a = 9223372036854775809", 4, "64 bits"),
        ("a = 0xFFFFFFFFFFFFFFFF", 4, "64 bits"),
        ("XPATH '//a'", 0, "XPATH is not supported"),
        ("a = 1 AND xquery '//a'", 10, "XQUERY is not supported"),
        ("hyphenated_props:a = ", 20, "ends too early"),
        ("convert_string_expressions:a = !", 31, "<>"),
        ("Hyphenated_props:a = 1", 16, "unexpected ':'"),
    ],
)
def test_refusals_point_at_the_fault(text: str, position: int, reason: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        compile_filter(text)
    assert caught.value.position == position
    assert caught.value.text == text.strip()
    assert reason in caught.value.reason
    assert f"character {position + 1} of" in str(caught.value)


def test_the_message_shows_the_beginning_of_a_long_text() -> None:
    with pytest.raises(InvalidFilter) as caught:
        compile_filter("a = 1 AND " * 100)
    assert len(str(caught.value)) < 200


def test_a_lazy_mapping_is_asked_only_for_what_is_needed() -> None:
    asked: list[str] = []

    class Headers:
        def get(self, name: str, /) -> Value:
            asked.append(name)
            return 1

    assert compiled("a = 1 OR b = 1").matches(Headers())
    assert asked == ["a"]


def test_filters_are_shared_and_equal_by_text() -> None:
    assert compile_filter(" a = 1 ") is compile_filter("a = 1")
    assert compiled("a = 1") == compiled("a = 1")
    assert compiled("a = 1") != compiled("a = 2")
    assert compiled("a = 1") != "a = 1"
    assert len({compiled("a = 1"), compiled("a = 1 ")}) == 1
    assert repr(compiled("a = 1")) == "Filter('a = 1')"
