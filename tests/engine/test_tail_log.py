"""The log of a store that is written, followed: across segments, past what is being written, past damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import of_store
from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.format import sysflag
from engine.format.message import Message
from engine.inspect.dump.dledger import dump_entries
from engine.inspect.dump.dump import dump_log
from engine.inspect.store.survey import survey
from engine.log.scan import Damage
from engine.store import MessageStore
from engine.tail_log import FollowedLog
from tests.engine.opening import small
from tests.support import dledger


def taken(log: FollowedLog) -> list[bytes]:
    return [bytes(message.body) for message in log.next_messages()]


def test_what_is_put_is_seen_across_segments(tmp_path: Path) -> None:
    config = small(tmp_path / "s")
    with MessageStore.open(config) as store:
        store.put(Message("U", b"before"))
    with MessageStore.open(config) as store, FollowedLog(config) as log, FollowedLog(config, ["U"]) as other:
        assert taken(log) == []
        bodies = [b"%04d" % number + b"x" * 400 for number in range(config.mapped_file_size_commit_log // 200)]
        seen: list[bytes] = []
        for number, body in enumerate(bodies):
            store.put(Message("T", body))
            if number % 50 == 0:
                seen += taken(log)
        store.put(Message("U", b"u"))
        store.put(Message("RMQ_SYS_TRACE_TOPIC", b"of clients"))
        store.put(Message("T", b"half", sys_flag=sysflag.TRANSACTION_PREPARED))
        assert seen + taken(log) == [*bodies, b"u"]
        assert taken(other) == [b"u"]
        assert len(list((tmp_path / "s" / "commitlog").iterdir())) > 2
        assert not log.passed


def test_topics_that_are_not_there(tmp_path: Path) -> None:
    config = small(tmp_path / "s")
    with MessageStore.open(config) as store:
        store.put(Message("Orders", b"x"))
    with pytest.raises(InvalidArgument, match="no topic Ordres"):
        FollowedLog(config, ["Ordres"])


def test_a_record_that_is_being_written_and_one_that_is_damaged(tmp_path: Path) -> None:
    """The bytes of three records appear one after another in a copy of the log, as a broker's writes would."""
    config = small(tmp_path / "s")
    with MessageStore.open(config) as store:
        first = store.put(Message("T", b"before")).append
        placed = [one for number in range(3) if (one := store.put(Message("T", b"body %d" % number)).append)]
    assert first is not None
    (segment,) = [path for path in (tmp_path / "s" / "commitlog").iterdir() if path.name == "0" * 20]
    whole = segment.read_bytes()
    start = first.physical_offset + first.size
    segment.write_bytes(whole[:start] + bytes(len(whole) - start))

    def write(upto: int, content: bytes) -> None:
        with segment.open("r+b") as file:
            file.seek(start)
            file.write(content[start:upto])

    with FollowedLog(config) as log:
        write(placed[0].physical_offset + 40, whole)
        assert taken(log) == []  # half of it
        write(placed[1].physical_offset, whole)
        assert taken(log) == [b"body 0"]
        (damage,) = log._scanner.scan(placed[1].physical_offset)  # read before, judged after both were written
        assert isinstance(damage, Damage)
        write(len(whole), whole)
        assert log._after(damage) == placed[1].physical_offset
        write(len(whole), whole[: placed[1].physical_offset] + bytes(len(whole) - placed[1].physical_offset))
        at = whole.index(b"body 1")
        broken = whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
        write(placed[2].physical_offset, broken)
        assert taken(log) == []
        write(len(whole), broken)
        assert taken(log) == []
        assert log.passed == [(placed[1].physical_offset, placed[2].physical_offset)]
        assert taken(log) == [b"body 2"]
    segment.write_bytes(whole)


@pytest.mark.leaves("not-closed")
def test_entries_of_dledger_are_followed_from_file_to_file(tmp_path: Path) -> None:
    """The bytes of a real broker's entries appear one file after another, one of them in pieces."""
    store = dledger.unpack("killed5", tmp_path)
    first, *later = dledger.entry_files(store)
    config = of_store(store)
    bodies = [bytes(one.message.body) for one in dump_log(Disk(), config) if one.message is not None]
    contents = {path: path.read_bytes() for path in (first, *later)}
    rows = [row for row in dump_entries(Disk(), survey(Disk(), config)) if row.entry is not None]
    start, half = rows[5].offset, rows[8].offset
    first.write_bytes(contents[first][:start] + bytes(len(contents[first]) - start))
    for path in later:
        path.unlink()
    seen: list[bytes] = []
    with FollowedLog(config, ["T", "Other", "SCHEDULE_TOPIC_XXXX"]) as log:
        assert taken(log) == []
        for upto in (half - 30, half + 20, half + 60):
            first.write_bytes(contents[first][:upto] + bytes(len(contents[first]) - upto))
            seen += taken(log)
        (damage,) = log._scanner.scan(half)  # read before, judged after it was written
        assert isinstance(damage, Damage)
        first.write_bytes(contents[first])
        assert log._after(damage) == half
        seen += taken(log)
        for path in later:
            path.write_bytes(contents[path])
            seen += taken(log)
        assert not log.passed
    assert seen == bodies[5:]
