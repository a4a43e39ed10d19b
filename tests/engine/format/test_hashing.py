"""CRC and Java hashes: literal values of a real JVM, and the batch forms equal to the single ones."""

from __future__ import annotations

import crcmod.predefined
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.format import hashing

INTEGER_MIN = -(1 << 31)
crc32_by_definition = crcmod.predefined.mkPredefinedCrcFun("crc-32")

JAVA = {
    "": 0,
    "a": 97,
    "hello": 99162322,
    "TagA": 2598919,
    "polygenelubricants": INTEGER_MIN,
    "标签": 857175,
    "é中": 20013 + 31 * 233,
    "😀": 31 * 0xD83D + 0xDE00,
    "🚀rocket": None,  # only compared with the slow way below
}


def slowly(text: str) -> int:
    """String.hashCode as its documentation has it: s[0]·31^(n-1) + … + s[n-1] over UTF-16 units, in 32 bits."""
    raw = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2)]
    total = sum(unit * 31 ** (len(units) - 1 - i) for i, unit in enumerate(units)) % (1 << 32)
    return total - (1 << 32) if total >= 1 << 31 else total


@pytest.mark.parametrize(("text", "value"), [(text, value) for text, value in JAVA.items() if value is not None])
def test_java_hash_of_known_strings(text: str, value: int) -> None:
    assert hashing.java_hash(text) == value


@given(st.text(st.characters(), max_size=60))
def test_java_hash_is_the_documented_sum(text: str) -> None:
    assert hashing.java_hash(text) == slowly(text)


def test_lone_surrogates_count_as_units() -> None:
    assert hashing.java_hash("\ud83d") == 0xD83D


@given(st.lists(st.one_of(st.text(max_size=30), st.text(st.characters(max_codepoint=127), max_size=200))))
def test_many_hashes_equal_single_ones(texts: list[str]) -> None:
    many = hashing.java_hashes(texts)
    assert many.dtype == np.int32
    assert many.tolist() == [hashing.java_hash(text) for text in texts]


@given(st.lists(st.text(max_size=30)))
def test_many_key_hashes_equal_single_ones(keys: list[str]) -> None:
    many = hashing.index_key_hashes(keys)
    assert many.dtype == np.int32
    assert many.tolist() == [hashing.index_key_hash(key) for key in keys]
    assert all(0 <= h < 1 << 31 for h in many.tolist())


def test_key_hash_of_integer_min_is_zero() -> None:
    assert hashing.index_key_hash("polygenelubricants") == 0
    assert hashing.index_key_hashes(["polygenelubricants", "hello"]).tolist() == [0, 99162322]


def test_tags_code_keeps_the_sign() -> None:
    assert hashing.tags_code("polygenelubricants") == INTEGER_MIN
    assert hashing.tags_code(None) == hashing.tags_code("") == 0


@given(st.binary(max_size=2000))
def test_crc_is_crcmods_crc_32_without_its_sign(body: bytes) -> None:
    assert hashing.body_crc(body) == crc32_by_definition(body) & 0x7FFFFFFF


def test_crc_check_value() -> None:
    assert hashing.body_crc(b"123456789") == 0xCBF43926 & 0x7FFFFFFF
    assert hashing.body_crc(memoryview(b"123456789")) == hashing.body_crc(b"123456789")
    assert hashing.body_crc(b"") == 0
