"""Properties by Apache's own rules (MessageDecoder#string2messageProperties)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.format import properties
from tests.support import strategies


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        ("\x02\x02a\x01b\x02\x02c\x01d\x02\x02", {"a": "b", "c": "d"}),
        ("e\x01", {}),
        ("e\x01\x02a\x01b", {"a": "b"}),
        ("\x01value", {}),
        ("noseparator\x02a\x01b", {"a": "b"}),
        ("a\x01b\x01c", {"a": "b\x01c"}),
        ("a\x01\x01", {"a": "\x01"}),
        ("WAIT\x01true\x02k\x01v\x02WAIT\x01false", {"WAIT": "false", "k": "v"}),
        ("😀\x01🚀", {"😀": "🚀"}),
    ],
)
def test_strings_as_apache_reads_them(text: str, found: dict[str, str]) -> None:
    assert properties.parse(text) == found
    assert list(properties.parse(text)) == list(found)


def as_apache(text: str) -> dict[str, str]:
    """MessageDecoder#string2messageProperties, line by line."""
    found: dict[str, str] = {}
    index = 0
    while index < len(text):
        new_index = text.find("\x02", index)
        if new_index < 0:
            new_index = len(text)
        if new_index - index >= 3:
            at = text.find("\x01", index)
            if index < at < new_index - 1:
                found[text[index:at]] = text[at + 1 : new_index]
        index = new_index + 1
    return found


@given(st.text("ab\x01\x02", max_size=30))
def test_any_string_is_read_as_apache_reads_it(text: str) -> None:
    assert properties.parse(text) == as_apache(text)


@given(st.text("ab\x01\x02", max_size=30))
def test_some_are_read_as_among_all(text: str) -> None:
    every = properties.parse(text)
    assert properties.parser_of("a", "ab", "bb")(text) == {n: v for n, v in every.items() if n in ("a", "ab", "bb")}


@given(strategies.properties)
def test_what_is_joined_is_parsed(found: dict[str, str]) -> None:
    text = properties.join(found)
    assert properties.parse(text) == found
    assert not text.endswith("\x02")
    assert properties.parse(text + "\x02") == found


def test_key_words() -> None:
    assert properties.key_words("a  b é ") == ["a", "b", "é"]
    assert properties.key_words("a\tb") == ["a\tb"]
    assert properties.key_words("") == properties.key_words(None) == []


@pytest.mark.parametrize(
    ("value", "waits"), [("true", True), ("TRUE", True), ("false", False), ("", False), ("1", False)]
)
def test_wait(value: str, waits: bool) -> None:
    assert properties.waits_for_flush({"WAIT": value}) is waits


def test_without_wait_a_put_waits() -> None:
    assert properties.waits_for_flush({})


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("3", 3),
        ("20", 20),
        ("-1", -1),
        ("+4", 4),
        ("", 0),
        ("x", 0),
        ("1_0", 0),
        (" 3", 0),
        ("9" * 5000, 0),
        ("2147483648", 0),
    ],
)
def test_delay_levels_are_javas_ints(value: str, level: int) -> None:
    assert properties.delay_level({"DELAY": value}) == level
    assert properties.delay_level({}) == 0
