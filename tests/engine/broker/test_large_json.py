"""Large JSON bodies are read in pieces: what orjson reads is read, what it refuses is refused, and the loop goes on."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.broker.requests.large_json import NESTED_MOST, PIECE, STRING_MAX, BeyondBounds, NotJson, loads

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=6),
    max_leaves=40,
)  # fmt: skip
FILLING = [" " * 200 + '\u00e4"\\,[{]}' * 20] * 40


@given(VALUES, st.booleans())
def test_what_is_written_is_read(value: object, spaced: bool) -> None:
    """Also where it is too large for one piece, at each level."""
    for large in (value, [value, FILLING], {"a": value, "b": [{"c": FILLING, "d": value}], "e": {}}):
        text = orjson.dumps(large, option=orjson.OPT_INDENT_2 if spaced else None)
        assert loads(text) == orjson.loads(text)


BROKEN = {"a": [{"b": [1, "x"], "c": {}}] * 3, "f": ["y" * PIECE, -1.5e3, None, True], "g": []}
PUT_IN = st.binary(max_size=3) | st.sampled_from([b"{", b"}", b"[", b"]", b",", b":", b'"', b" ", b"\\"])


@given(st.data())
def test_what_is_broken_is_refused_as_by_the_parser(data: st.DataObject) -> None:
    text = bytearray(orjson.dumps(BROKEN))
    at = data.draw(st.integers(0, len(text) - 1) | st.integers(0, 70) | st.integers(len(text) - 40, len(text) - 1))
    text[at : at + data.draw(st.integers(0, 3))] = data.draw(PUT_IN)
    try:
        wanted = orjson.loads(bytes(text))
    except orjson.JSONDecodeError:
        with pytest.raises(NotJson):
            loads(bytes(text))
    else:
        assert loads(bytes(text)) == wanted


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_levels_without_end_are_refused(opening: bytes) -> None:
    with pytest.raises(BeyondBounds, match="levels"):
        loads(opening * 200_000)
    closing = b"]" if opening == b"[" else b"}"
    deep = opening * NESTED_MOST * 2 + b'"' + b"x" * PIECE + b'"' + closing * NESTED_MOST * 2
    with pytest.raises(BeyondBounds, match="levels"):
        loads(deep)


def test_a_string_beyond_its_bound_is_refused() -> None:
    with pytest.raises(BeyondBounds, match=f"a string of more than {STRING_MAX} bytes"):
        loads(orjson.dumps({"a": "x" * STRING_MAX}))
    assert loads(orjson.dumps({"a": "x" * (STRING_MAX - 2)})) == {"a": "x" * (STRING_MAX - 2)}
    with pytest.raises(NotJson):
        loads(b'{"a":"' + b"x" * 100)
