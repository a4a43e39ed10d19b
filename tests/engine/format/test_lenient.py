"""lenient: what fastjson reads beside strict JSON, and as much of a spoilt text as is complete."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.format import fastjson, lenient


@pytest.mark.parametrize(
    ("text", "value", "odd"),
    [
        ('{"a":{0:5},}', {"a": {"0": 5}}, "extra commas"),
        ('{"a":{0:5 1:6}}', {"a": {"0": 5, "1": 6}}, "missing commas"),
        ("{a:1}", {"a": 1}, "keys without quotes"),
        ("{'a':'b\"c'}", {"a": 'b"c'}, "single quotes"),
        ('/* x */{"a":1} // y', {"a": 1}, "comments"),
        ('\ufeff{"a":1}', {"a": 1}, "a byte order mark"),
        ('{"a":1}\0\0', {"a": 1}, "zeros after the end"),
        ('{"a":+5}', {"a": 5}, "numbers that are not in JSON's form"),
        ('{"a":1,"a":2}', {"a": 2}, lenient.TWICE),
    ],
)
def test_what_fastjson_reads(text: str, value: Any, odd: str) -> None:
    """Each of these was given to fastjson 1.2.69_noneautotype, as 4.9.8 has it: it reads them like this."""
    assert lenient.read(text) == lenient.LenientResult(value, (odd,), None, len(text.rstrip("\0")))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{0:5,1:6', {"a": {"0": 5}}),
        ('{"a":{0:5,1:6,', {"a": {"0": 5, "1": 6}}),
        ('{"a":1,"b":tru', {"a": 1}),
        ('{"a":1,"b":"tex', {"a": 1}),
        ('{"a":1,"b"', {"a": 1}),
        ('{"a":[1,2}', {"a": [1, 2]}),
        ('{"a":1}xyz', {"a": 1}),
        ('{"a":1}}', {"a": 1}),
        ('{"a":1,"b":NaN}', {"a": 1}),
        ('{"a":1,\0\0\0\0}', {"a": 1}),
        ("", None),
        ("[" * 100_000, ...),
        ('{"a":' + "9" * 5000 + "}", {}),
    ],
)
def test_what_stands_before_the_break_is_kept(text: str, value: Any) -> None:
    found = lenient.read(text)
    assert found.broken
    assert value is ... or found.value == value


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_strict_json_is_read_as_it_is(value: Any) -> None:
    for text in (json.dumps(value), fastjson.dumps(value)):
        assert lenient.read(text) == lenient.LenientResult(value, (), None, len(text))


@given(st.dictionaries(st.text(), st.dictionaries(st.integers(0, 99).map(str), st.integers(0), max_size=5)), st.data())
def test_a_cut_text_never_gives_another_value(value: dict[str, dict[str, int]], data: st.DataObject) -> None:
    text = fastjson.dumps(value)
    found = lenient.read(text[: data.draw(st.integers(0, len(text) - 1))])
    assert found.broken
    for key, table in (found.value or {}).items():
        assert table.items() <= value[key].items()


@given(st.text(alphabet="{}[]:,\"'0123456789.eE+-abtruefalsn\\ \0/*\ufeff"))
def test_it_never_raises(text: str) -> None:
    lenient.read(text)
