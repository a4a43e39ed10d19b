"""Hypothesis strategies for what a store holds."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.format import sysflag
from engine.format.hosts import Host
from engine.format.message import Message
from engine.format.numbers import INT_MAX, INT_MIN, LONG_MIN

ints = st.integers(INT_MIN, INT_MAX)
longs = st.integers(LONG_MIN, -LONG_MIN - 1)
offsets = st.integers(0, -LONG_MIN - 1)
_addresses = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))
hosts = st.builds(Host, _addresses, ints)
real_hosts = st.builds(Host, _addresses, st.integers(0, 65535))
sys_flags = st.integers(0, 0x7FF).map(lambda bits: bits & ~(sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6))
_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=12)
properties = st.dictionaries(_text, _text, max_size=6)
_no_zeros = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\x01\x02"), min_size=1, max_size=12)
sent_properties = st.dictionaries(_no_zeros, _no_zeros, max_size=6)
topics = _text.filter(lambda topic: len(topic.encode()) <= 127)
messages = st.builds(
    Message,
    topic=topics,
    body=st.binary(max_size=300),
    queue_id=ints,
    properties=properties,
    flag=ints,
    sys_flag=sys_flags,
    born_timestamp=longs,
    born_host=hosts,
    store_host=hosts,
    reconsume_times=ints,
    prepared_transaction_offset=longs,
)
