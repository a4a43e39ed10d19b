"""Units and keys of plain records as a kernel: what engine.log.derive says record by record, for a table of them.

A record is *odd* when a rule of engine.log.derive asks for more than bytes: text that isn't ASCII in its topic, tags or
keys; a delayed message; light queues. Those are named, and derived there one by one, so that their rules stand in one
place. Of any other record everything is here: queue, tags code, the hashes of its keys.

Queues are named by *entry*: a place in `KnownQueues`, or after its end for those that this batch shows first. Nothing
here is shared but the known queues, which never change: kernels of several batches may run at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.format import names, properties, sysflag
from engine.format.hashing import TAG_MARK
from engine.log.kernels.intrinsics import equal64, first_bit, little64, soon_read
from engine.log.kernels.jit import compiled, inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.log.batch import RecordBatch
    from engine.log.derive import DeriveRules

_SLOTS = 1 << 10
_GUESSES = 63
_U8 = np.uint64(8)
_HIGH_BITS = np.uint64(0x8080808080808080)
_SEPARATOR = np.uint8(ord(properties.SEPARATOR))
_ZERO, _1 = np.uint64(0), np.uint64(1)
_31 = np.uint32(31)
_31_4 = np.uint32(pow(31, 4, 1 << 32))
_31_8 = np.uint32(pow(31, 8, 1 << 32))
_31_64, _961 = np.uint64(31), np.uint64(961)
_16, _32 = np.uint64(16), np.uint64(32)
_BYTES, _WORDS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_29 = np.uint64(29)
_TRANSACTION = sysflag.TRANSACTION_MASK
_PREPARED = sysflag.TRANSACTION_PREPARED
_ROLLBACK = sysflag.TRANSACTION_ROLLBACK
_SCHEDULE = np.frombuffer(names.SCHEDULE_TOPIC.encode(), dtype=np.uint8)
_AHEAD = 8
"""Records whose topic and properties are on their way from memory while one is derived."""
_BLANK = ord(" ")
_TAG_MARK = np.frombuffer(TAG_MARK.encode(), dtype=np.uint8)
_ODD = 1
_DELAYED = 2
# Rows of the arrays that the kernel fills: few arrays, as each that a call takes costs a microsecond or two.
_QUEUE_OFFSET, _OFFSET, _CODE, _TIME = range(_WIDE := 4)
_NEW, _ODD_ONE = range(_MARKS := 2)
_ENTRY, _SIZE = range(_NARROW := 2)
_KEY_OFFSET, _KEY_TIME = range(_KEY_WIDE := 2)


def _name(text: str) -> NDArray[np.uint8]:
    return np.frombuffer((text + properties.NAME_VALUE).encode(), dtype=np.uint8)


def _first_word(name: NDArray[np.uint8]) -> tuple[Any, Any]:
    """The first up to 8 bytes of a name, little endian, and a mask of as many."""
    part = bytes(name[:8])
    return np.uint64(int.from_bytes(part, "little")), np.uint64((1 << 8 * len(part)) - 1)


_TAGS, _KEYS, _UNIQ_KEY = _name(properties.TAGS), _name(properties.KEYS), _name(properties.UNIQ_KEY)
(_TAGS_WORD, _TAGS_MASK), (_KEYS_WORD, _KEYS_MASK) = _first_word(_TAGS), _first_word(_KEYS)
_UNIQ_WORD = _first_word(_UNIQ_KEY)[0]
assert (len(_TAGS), len(_KEYS), len(_UNIQ_KEY)) == (5, 5, 9)
_ENDS_NAME = np.uint8(1)
assert _UNIQ_KEY[8] == _ENDS_NAME
_DELAY, _MULTI = _name(properties.DELAY), _name(properties.INNER_MULTI_DISPATCH)


class KnownQueues(NamedTuple):
    """Queues seen so far, n of them, found by their topic's bytes and id. Never changed: `with_queues` makes another.

    slots int32[2^k] (entry, or −1), queue_ids int64[n], prefixes uint32[n] (Java hash of topic + "#"), flags uint8[n],
    starts int64[n + 1] (places of the topics in `topics`, uint8).
    """

    slots: NDArray[np.int32]
    queue_ids: NDArray[np.int64]
    prefixes: NDArray[np.uint32]
    flags: NDArray[np.uint8]
    starts: NDArray[np.int64]
    topics: NDArray[np.uint8]

    @property
    def lasts(self) -> bool:
        """Whether one is given to many calls (`engine.log.kernels.kept.LastTuple`)."""
        return True

    @classmethod
    def none(cls) -> KnownQueues:
        """No queue."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(
            np.full(_SLOTS, -1, dtype=np.int32),
            empty,
            empty.astype(np.uint32),
            empty.astype(np.uint8),
            np.zeros(1, dtype=np.int64),
            empty.astype(np.uint8),
        )

    def with_queues(self, topics: list[bytes], queue_ids: list[int]) -> KnownQueues:
        """These queues, and new ones after them."""
        added = np.frombuffer(b"".join(topics), dtype=np.uint8)
        starts = np.concatenate([self.starts, self.starts[-1] + np.cumsum([len(topic) for topic in topics])])
        ids = np.concatenate([self.queue_ids, np.array(queue_ids, dtype=np.int64)])
        bytes_of_all = np.concatenate([self.topics, added])
        slots = len(self.slots)
        while slots < 4 * len(ids):
            slots *= 2
        queues = KnownQueues(
            np.full(slots, -1, dtype=np.int32),
            ids,
            np.zeros(len(ids), dtype=np.uint32),
            np.zeros(len(ids), dtype=np.uint8),
            starts.astype(np.int64),
            bytes_of_all,
        )
        _fill(*queues)
        return queues


class DerivedPart(NamedTuple):
    """What the kernel derives of a batch's records up to `end`: the columns of `Units` and `Keys`, queues by entry.

    `moved`: how many records name another physical offset than their own. `messages`: how many get a unit
    (`sysflag.is_consumable`). `newest`: the largest store time (ms). `back`: how many records were stored before the
    one in front of them in the batch. `there`: how many queues were known. `new`: the first record of each that was
    not, in order of their entries. `odd`: records left to engine.log.derive.
    """

    end: int
    moved: int
    messages: int
    newest: int
    back: int
    there: int
    entry: NDArray[np.int32]
    queue_offset: NDArray[np.int64]
    physical_offset: NDArray[np.int64]
    size: NDArray[np.int32]
    tags_code: NDArray[np.int64]
    store_timestamp: NDArray[np.int64]
    key_hash: NDArray[np.int32]
    key_offset: NDArray[np.int64]
    key_timestamp: NDArray[np.int64]
    new: NDArray[np.int64]
    odd: NDArray[np.int64]


def derive_part(batch: RecordBatch, begin: int, rules: DeriveRules, known: KnownQueues) -> DerivedPart:
    """Derive the records of a batch (one with a table) from `begin` on; as many as there is room for."""
    assert batch.table is not None
    data = np.frombuffer(batch.buffer, dtype=np.uint8)
    data.flags.writeable = False
    left = len(batch.table) - begin
    wide = np.empty((_WIDE, left), dtype=np.int64)
    narrow = np.empty((_NARROW, left), dtype=np.int32)
    keys = 3 * left + int(batch.table[begin:, 12].max()) // 2 + 2  # so that any record finds room
    key_hash = np.empty(keys, dtype=np.int32)
    key_wide = np.empty((_KEY_WIDE, keys), dtype=np.int64)
    marks = np.empty((_MARKS, left), dtype=np.int64)
    end, units, keys, fresh, odd, moved, messages, newest, back = _derive(
        data, batch.table, begin, batch.base,
        rules.index, rules.tag_keys, rules.multi_dispatch, known, known.slots.copy(),
        narrow, wide, key_hash, key_wide, marks,
    )  # fmt: skip
    return DerivedPart(
        end,
        moved,
        messages,
        newest,
        back,
        len(known.queue_ids),
        narrow[_ENTRY, :units],
        wide[_QUEUE_OFFSET, :units],
        wide[_OFFSET, :units],
        narrow[_SIZE, :units],
        wide[_CODE, :units],
        wide[_TIME, :units],
        key_hash[:keys].copy(),
        key_wide[_KEY_OFFSET, :keys],
        key_wide[_KEY_TIME, :keys],
        marks[_NEW, :fresh],
        marks[_ODD_ONE, :odd],
    )


@inlined
def _word(data: Any, at: int, end: int) -> Any:
    """Up to 8 bytes of data[at:end], little endian, zeros after them."""
    if at + 8 <= len(data):
        word = little64(data, at)
        if end - at < 8:
            word &= (_1 << (_U8 * np.uint64(end - at))) - _1
        return word
    word = _ZERO
    for k in range(min(8, end - at)):
        word |= np.uint64(data[at + k]) << (_U8 * np.uint64(k))
    return word


@compiled
def _slot(data: Any, start: int, end: int, queue_id: int) -> Any:
    """Where to look first for a queue: a hash of its topic and id."""
    h = np.uint64(queue_id) * _MIX
    for at in range(start, end, 8):
        h = (h ^ _word(data, at, end)) * _MIX
        h ^= h >> _29
    return np.int64(h >> np.uint64(33))


@inlined
def _same(one: Any, at: int, other: Any, begin: int, length: int) -> bool:
    done = 0
    while done < length:
        if _word(one, at + done, at + length) != _word(other, begin + done, begin + length):
            return False
        done += 8
    return True


@inlined
def _hash(data: Any, start: int, end: int, h: Any) -> Any:
    """Java's String.hashCode continuing from `h` over bytes: uint32, and a value with _HIGH_BITS when one isn't ASCII.

    Eight characters at once: pairs become 16-bit numbers, pairs of those 32-bit ones, which ASCII can't overflow.
    """
    at = start
    seen = _ZERO
    while end - at >= 8:
        word = little64(data, at)
        seen |= word
        pairs = (word & _BYTES) * _31_64 + ((word >> _U8) & _BYTES)
        fours = (pairs & _WORDS) * _961 + ((pairs >> _16) & _WORDS)
        h = h * _31_8 + np.uint32(fours) * _31_4 + np.uint32(fours >> _32)
        at += 8
    while at < end:
        seen |= np.uint64(data[at])
        h = h * _31 + np.uint32(data[at])
        at += 1
    return h, seen


@compiled
def _prefix(data: Any, start: int, end: int) -> Any:
    """Java hash of topic + "#", and the topic's flags."""
    flags = 0
    h, seen = _hash(data, start, end, np.uint32(0))
    if seen & _HIGH_BITS:
        flags |= _ODD
    if end - start == len(_SCHEDULE) and _same(data, start, _SCHEDULE, 0, len(_SCHEDULE)):
        flags |= _DELAYED
    return h * _31 + np.uint32(35), flags


@compiled
def _fill(slots: Any, queue_ids: Any, prefixes: Any, flags: Any, starts: Any, topics: Any) -> None:
    mask = len(slots) - 1
    for entry in range(len(queue_ids)):
        start, end = starts[entry], starts[entry + 1]
        prefixes[entry], flags[entry] = _prefix(topics, start, end)
        slot = _slot(topics, start, end, queue_ids[entry]) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = entry


@inlined
def _marks(data: Any, at: int, end: int, byte: Any) -> Any:
    """Which of the 64 bytes from `at` on are `byte`, bit by bit; none at or after `end`."""
    if at + 64 <= len(data):
        marks = equal64(data, at, byte)
        return marks if end - at >= 64 else marks & ((_1 << np.uint64(end - at)) - _1)
    marks = _ZERO
    for k in range(min(64, end - at)):
        if data[at + k] == byte:
            marks |= _1 << np.uint64(k)
    return marks


@inlined
def _put_key(key_hash: Any, count: int, h: Any) -> None:
    value = np.int64(np.int32(h))
    key_hash[count] = 0 if value == -(1 << 31) else abs(value)


@compiled
def _derive(  # noqa: PLR0912, PLR0915 - one loop on purpose
    data: Any, table: Any, begin: int, base: int, index: bool, tags: bool, multi: bool, known: Any, slots: Any,
    narrow: Any, wide: Any, key_hash: Any, key_wide: Any, marked: Any,
) -> tuple[int, int, int, int, int, int, int, int, int]:  # fmt: skip
    """Fill the columns; (record after the last one, units, keys, new queues, odd and moved records, messages, newest
    store time, records that were stored before the one in front)."""
    mask = len(slots) - 1
    guesses = np.full(_GUESSES + 1, -1, dtype=np.int32)
    # Arrays that a loop takes out of a tuple, or slices, are counted each time, for all threads to wait for.
    queue_ids, prefixes, topic_flags = known.queue_ids, known.prefixes, known.flags
    starts, topics = known.starts, known.topics
    there = len(queue_ids)
    units = keys = fresh = odds = moved = messages = back = 0
    record = begin
    before_that = table[max(begin - 1, 0), 6] if len(table) else np.int64(0)
    newest: Any = before_that
    while record < len(table):
        size, queue_id, stored = table[record, 1], table[record, 2], table[record, 6]
        topic_at, topic_length = table[record, 9], table[record, 10]
        topic_end = topic_at + topic_length
        at = table[record, 11]
        end = at + table[record, 12]
        if record + _AHEAD < len(table):
            later = table[record + _AHEAD, 9]
            soon_read(data, later)
            soon_read(data, later + 64)
            soon_read(data, later + 128)
        kind = table[record, 5] & _TRANSACTION
        consumable = kind not in (_PREPARED, _ROLLBACK)
        indexed = index and kind != _ROLLBACK
        if keys + (end - at) // 2 + 2 > len(key_hash) or 2 * (there + fresh + 1) > len(slots):
            break
        moved += table[record, 4] != base + table[record, 0]
        messages += consumable
        newest = max(newest, stored)
        back += stored < before_that
        before_that = stored
        entry = -1
        prefix = np.uint32(0)
        flags = 0
        if consumable:
            guess = guesses[queue_id & _GUESSES]
            if guess >= 0 and queue_ids[guess] == queue_id:
                start = starts[guess]
                if starts[guess + 1] - start == topic_length and _same(data, topic_at, topics, start, topic_length):
                    entry = guess
            if entry < 0:
                slot = _slot(data, topic_at, topic_end, queue_id) & mask
                while True:
                    entry = slots[slot]
                    if entry < 0:
                        entry = there + fresh
                        slots[slot] = entry
                        marked[_NEW, fresh] = record
                        fresh += 1
                        break
                    if entry < there:
                        start = starts[entry]
                        if (
                            queue_ids[entry] == queue_id
                            and starts[entry + 1] - start == topic_length
                            and _same(data, topic_at, topics, start, topic_length)
                        ):
                            break
                    else:
                        first = table[marked[_NEW, entry - there]]
                        if (
                            first[2] == queue_id
                            and first[10] == topic_length
                            and _same(data, topic_at, data, first[9], topic_length)
                        ):
                            break
                    slot = (slot + 1) & mask
        if 0 <= entry < there:
            guesses[queue_id & _GUESSES] = entry
            prefix = prefixes[entry]
            flags = int(topic_flags[entry])
        elif consumable or indexed:
            prefix, flags = _prefix(data, topic_at, topic_end)
        is_odd = flags & _ODD != 0
        tags_at = tags_end = keys_at = keys_end = unique_at = unique_end = 0
        block = at
        marks = _marks(data, at, end, _SEPARATOR) if at < end else _ZERO
        while at < end and (consumable or indexed):
            while not marks and block + 64 < end:
                block += 64
                marks = _marks(data, block, end, _SEPARATOR)
            stop = end
            if marks:
                stop = block + first_bit(marks)
                marks &= marks - _1
            length = stop - at
            word = _word(data, at, stop)
            if length > 5 and word & _TAGS_MASK == _TAGS_WORD:
                tags_at, tags_end = at + 5, stop
            elif length > 5 and word & _KEYS_MASK == _KEYS_WORD:
                keys_at, keys_end = at + 5, stop
            elif length > 9 and word == _UNIQ_WORD and data[at + 8] == _ENDS_NAME:
                unique_at, unique_end = at + 9, stop
            elif (length > 6 and flags & _DELAYED and _same(data, at, _DELAY, 0, 6)) or (
                multi and length > len(_MULTI) and _same(data, at, _MULTI, 0, len(_MULTI))
            ):
                is_odd = True
            at = stop + 1
        place = base + table[record, 0]
        code, seen = _hash(data, tags_at, tags_end, np.uint32(0))
        before = keys
        if indexed:
            if unique_end:
                h, some = _hash(data, unique_at, unique_end, prefix)
                seen |= some
                _put_key(key_hash, keys, h)
                keys += 1
            at = keys_at
            while at < keys_end:
                start = at
                while at < keys_end and data[at] != _BLANK:
                    at += 1
                if at > start:
                    h, some = _hash(data, start, at, prefix)
                    seen |= some
                    _put_key(key_hash, keys, h)
                    keys += 1
                at += 1
            if tags and tags_end:
                of_tags, some = _hash(_TAG_MARK, 0, len(_TAG_MARK), prefix)
                h, some = _hash(data, tags_at, tags_end, of_tags)
                _put_key(key_hash, keys, h)
                keys += 1
            for key in range(before, keys):
                key_wide[_KEY_OFFSET, key] = place
                key_wide[_KEY_TIME, key] = stored
        if is_odd or seen & _HIGH_BITS:
            keys = before
            marked[_ODD_ONE, odds] = record
            odds += 1
            record += 1
            continue
        if consumable:
            narrow[_ENTRY, units] = entry
            wide[_QUEUE_OFFSET, units] = table[record, 3]
            wide[_OFFSET, units] = place
            narrow[_SIZE, units] = size
            wide[_CODE, units] = np.int32(code)
            wide[_TIME, units] = stored
            units += 1
        record += 1
    return record, units, keys, fresh, odds, moved, messages, newest, back
