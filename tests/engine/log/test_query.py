"""What a query asks a record, without decoding all of it, is what it says decoded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import FormatError
from engine.format import properties
from engine.format.hashing import index_key_hash, message_key_hash
from engine.format.message import Message, decode, encode
from engine.log import reading
from engine.log.reading import has_key
from tests.support import strategies
from tests.support.wide import examples

WORDS = st.text(max_size=6) | st.sampled_from(["a", "b", "a b", "", " ", "a\x01b", "�", "\ud800"])


def said(record: bytes, topic: str, key: str) -> object:
    """The plain way: all of it decoded, the words of KEYS by `key_words`."""
    try:
        one = decode(record)
    except FormatError as error:
        return str(error)
    pairs = one.properties
    words = properties.key_words(pairs.get(properties.KEYS))
    return one.topic == topic and (pairs.get(properties.UNIQ_KEY) == key or key in words)


def asked(record: bytes, topic: str, key: str) -> object:
    try:
        answer = reading._is_asked_for(memoryview(record), topic, key)
    except FormatError as error:
        return str(error)
    assert answer == has_key(decode(record), topic, key)
    return answer


@pytest.mark.wide
@settings(max_examples=examples(1000), deadline=None)
@given(
    strategies.messages,
    st.dictionaries(st.sampled_from(["KEYS", "UNIQ_KEY", "TAGS", "KEY"]), WORDS, max_size=3),
    WORDS,
    st.lists(st.tuples(st.integers(0, 250), st.integers(0, 255)), max_size=3),
    st.integers(-3, 3),
    st.booleans(),
)
def test_a_record_is_asked_as_it_is_decoded(
    message: Message, pairs: dict[str, str], key: str, flips: list[tuple[int, int]], cut: int, same_topic: bool
) -> None:
    """Damaged bytes, torn and overlong records, bytes that are no UTF-8, too."""
    record = encode(message._replace(properties={**message.properties, **pairs}))
    for at, value in flips:
        if at < len(record):
            record[at] = value
    raw = bytes(record[:cut]) if cut < 0 else bytes(record) + bytes(cut)
    topic = message.topic if same_topic else "another"
    for word in (key, *pairs.values(), *message.properties.values()):
        assert asked(raw, topic, word) == said(raw, topic, word)


@given(st.text() | WORDS, st.text() | WORDS)
def test_the_hash_of_a_key_is_that_of_its_key_string(topic: str, key: str) -> None:
    assert message_key_hash(topic, key) == index_key_hash(f"{topic}#{key}")
