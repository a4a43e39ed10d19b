"""An old master goes back to where it diverged, and follows the new one: the same bytes, and no message is lost."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.ha.slave import LinkStatus, SlaveClient
from engine.client.ha_reader import HaReader
from engine.client.remote_broker import BrokerFacts, RemoteBroker
from engine.config import BrokerRole
from engine.errors import CannotRepair, FormatError, PeerLost, Refused
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.format import fastjson
from engine.inspect.check.check import check
from engine.inspect.store.consumers import DELIVERY
from engine.repair.change import Ending, Outcome, carry_out, preview
from engine.rewind.change import RewindChange
from engine.rewind.divergence import OtherLog
from engine.rewind.rewind import RewindPlan
from engine.store import MessageStore
from tests.engine.broker.ha.pair import LOG, QUICK, until
from tests.engine.opening import assert_sound, bodies, message, small
from tests.engine.rewind.divergences import QUEUES, Diverged, blanks, diverged, fill, records, served
from tests.support import stores
from tests.support.wide import WIDE


class Told(RemoteBroker):
    """The new master, whose broker is not there: what it would say of itself is what it is."""

    def __init__(self, one: Diverged) -> None:
        super().__init__("127.0.0.1:10911")
        self._one = one

    def facts(self) -> BrokerFacts:
        return self._one.facts


def rewind(one: Diverged, disk: Disk | None = None, *, verify_all: bool = False) -> Outcome[RewindPlan]:
    """The change as the command makes it."""
    return carry_out(RewindChange(Told(one), verify_all), disk or Disk(), one.config)


def log_of(root: Path) -> bytes:
    """What records and blanks are of a log."""
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir())).rstrip(b"\0")


def follows(one: Diverged) -> None:
    """The old master as a slave of the new one: it has all that comes, and the same bytes."""
    store = MessageStore.open(small(one.old, broker_role=BrokerRole.SLAVE))
    settings = replace(QUICK, master_address=f"127.0.0.1:{one.port}")
    client = SlaveClient(store, settings, LOG, start=0)
    client.start()
    try:
        fill(one.new, random.Random(0), 20, "after")
        end = one.new.log.max_offset
        until(lambda: client.state.end == end or client.state.status is LinkStatus.DIVERGED)
        assert client.state.status is LinkStatus.FOLLOWING, client.state.error
        assert store.wait_dispatched()
        assert one.new.wait_dispatched()
        for queue_id in range(QUEUES):
            assert bodies(store, "T", queue_id) == bodies(one.new, "T", queue_id)
    finally:
        client.stop()
        store.close()
    one.new.flush()
    assert log_of(one.old) == log_of(one.new.config.store_path_root_dir)


def replayed(one: Diverged, salvage: str | None, place: Path) -> dict[tuple[str, int], list[bytes]]:
    """What the repair saved, put back into a store of its own."""
    from engine.repair.replay.plan import ReplayRequest
    from engine.replay import ReplayChange

    name = None if salvage is None else Path(salvage).name
    done = carry_out(ReplayChange(ReplayRequest(name, place)), Disk(), one.config)
    assert done.ending is Ending.APPLIED
    with MessageStore.open(small(place, mapped_file_size_commit_log=65536)) as store:
        return {("T", queue_id): found for queue_id in range(QUEUES) if (found := bodies(store, "T", queue_id))}


SEEDS = range(100 if WIDE else 10)


@pytest.mark.wide
@pytest.mark.parametrize("seed", SEEDS)
def test_an_old_master_follows_the_new_one(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"divergence {seed}")
    most = 600 if WIDE else 250
    before, ours, theirs = rng.randrange(1, most), rng.randrange(1, most), rng.choice([0, rng.randrange(1, most)])
    with diverged(tmp_path, seed, before, ours, theirs) as one:
        done = rewind(one, verify_all=bool(seed % 2))
        assert done.ending is Ending.APPLIED
        plan = done.plan
        assert plan.divergence.common in (one.common, one.closed)
        assert (plan.divergence.tail.records, plan.divergence.tail.end) == (ours, one.end)
        assert plan.messages == ours
        assert Counter({queue: n for queue, (n, _) in plan.cut.repair.log.end.after.items()}) == Counter(
            {key: len(value) for key, value in one.lost.items()}
        )
        assert_sound(one.config)
        follows(one)
        assert check(Disk(), one.config).ok
        assert replayed(one, done.salvage, tmp_path / "put-back") == one.lost
        again = rewind(one)
        assert (again.ending, again.plan.messages) == (Ending.UNCHANGED, 0)


def test_one_record_each(tmp_path: Path) -> None:
    with diverged(tmp_path, 1, 1, 1, 1) as one:
        done = rewind(one)
        assert (done.plan.divergence.common, done.plan.messages) == (one.common, 1)
        follows(one)


def test_nothing_has_diverged(tmp_path: Path) -> None:
    with diverged(tmp_path, 2, 300, 0, 100) as one:
        before = stores.snapshot(one.old)
        done = rewind(one)
        assert (done.ending, done.plan.messages, done.plan.divergence.tail.records) == (Ending.UNCHANGED, 0, 0)
        after = stores.snapshot(one.old)
        after.pop("lock", None)
        assert {name: seen for name, seen in before.items() if name != "lock"} == after
        follows(one)


def test_an_empty_store_has_nothing_to_cut(tmp_path: Path) -> None:
    with diverged(tmp_path, 3, 0, 0, 100) as one:
        assert rewind(one).ending is Ending.UNCHANGED


def test_a_master_that_lacks_what_was_acknowledged_here(tmp_path: Path) -> None:
    """Nothing differs: the master's log ends before ours. The messages are lost there, and saved here."""
    with diverged(tmp_path, 4, 700, 40, 0) as one:
        done = rewind(one)
        assert (done.plan.divergence.common, done.plan.messages) == (one.common, 40)
        assert replayed(one, done.salvage, tmp_path / "put-back") == one.lost
        follows(one)


@pytest.mark.parametrize("ours", [1, 300])
def test_diverged_at_the_first_record_of_a_segment(ours: int, tmp_path: Path) -> None:
    """The blank record that closes the segment before is common: both wrote the same."""
    rng, old, new = random.Random(5), tmp_path / "old", tmp_path / "new"
    with MessageStore.open(small(old)) as store:
        fill(store, rng, 300, "both")
        while len(store.log.segments) == 2:
            fill(store, rng, 1, "both")
        assert len(store.log.segments) == 3
    last = records(old)[-1]  # the only one of its segment
    assert last % 65536 == 0
    shutil.copytree(old, new)
    from engine.repair.recover.apply import apply
    from engine.repair.recover.recover import plan_truncate

    apply(Disk(), plan_truncate(Disk(), small(new), to_offset=last), command="truncate", keep=False)
    lost: dict[tuple[str, int], list[bytes]] = {}
    with MessageStore.open(small(old)) as store:
        fill(store, rng, ours, "old")
        end = store.log.max_offset
    with served(new) as (store, port):
        fill(store, rng, 200, "new")
        one = Diverged(old, store, port, last, end, lost)
        done = rewind(one)
        assert done.plan.divergence.common == last
        assert done.plan.divergence.tail.records == ours + 1
        follows(one)


def test_diverged_many_segments_ago(tmp_path: Path) -> None:
    """Blank records of both are equal by chance where segments end with records of the same size."""
    old, new = tmp_path / "old", tmp_path / "new"
    with MessageStore.open(small(old)) as store:
        for i in range(100):
            assert store.put(message(b"%06d" % i + bytes(994)), wait=False).append
        common = store.log.max_offset
    shutil.copytree(old, new)
    with MessageStore.open(small(old)) as store:
        for i in range(400):
            assert store.put(message(b"%06d" % i + b"o" * 994), wait=False).append
        end = store.log.max_offset
    with served(new) as (store, port):
        for i in range(500):
            assert store.put(message(b"%06d" % i + b"n" * 994), wait=False).append
        one = Diverged(old, store, port, common, end, {})
        ours, theirs = log_of(old), log_of(new)
        by_chance = [at for at in blanks(old) if at > common and ours[at : at + 8] == theirs[at : at + 8]]
        assert len(by_chance) >= 5
        done = rewind(one)
        assert (done.plan.divergence.common, done.plan.messages) == (common, 400)
        follows(one)


def test_a_long_log_is_not_read_over_the_wire(tmp_path: Path) -> None:
    """24 MiB in common: what is read are a few records, and the window before the cut."""
    old, new = tmp_path / "old", tmp_path / "new"
    sizes = {"mapped_file_size_commit_log": 1 << 20, "max_message_size": 1 << 20}
    with MessageStore.open(small(old, **sizes)) as store:
        for i in range(240):
            assert store.put(message(b"%06d" % i + bytes(100_000)), wait=False).append
        common = store.log.max_offset
    shutil.copytree(old, new)
    with MessageStore.open(small(old, **sizes)) as store:
        for _ in range(30):
            assert store.put(message(b"old" + bytes(100_000)), wait=False).append
        end = store.log.max_offset
    with served(new, **sizes) as (store, port):
        for _ in range(40):
            assert store.put(message(b"new" + bytes(100_000)), wait=False).append
        one = Diverged(old, store, port, common, end, {}, sizes)
        plan = one.plan()
        assert plan.divergence is not None
        assert plan.divergence.common in (one.common, one.closed)
        assert plan.divergence.compared_from == plan.divergence.common - (4 << 20)
        assert plan.divergence.fetched < (4 << 20) + 25 * 100_100
        whole = one.plan(verify_all=True)
        assert whole.divergence is not None
        assert (whole.divergence.common, whole.divergence.compared_from) == (plan.divergence.common, 0)


def test_another_stores_master_is_refused(tmp_path: Path) -> None:
    with diverged(tmp_path / "one", 6, 100, 10, 10) as one, diverged(tmp_path / "two", 7, 100, 10, 10) as other:
        before = stores.snapshot(one.old)
        with pytest.raises(Refused, match="no record in common"):
            replace(one, new=other.new, port=other.port).plan()
        assert stores.snapshot(one.old) == before


def test_what_was_common_has_expired_at_the_master(tmp_path: Path) -> None:
    with diverged(tmp_path, 8, 100, 400, 400) as one:
        later = replace(one.facts, start=one.new.log.segments[1].offset)
        with pytest.raises(Refused, match="diverged before it") as refused:
            one.plan(facts=later)
        assert "rstore replicate --from 127.0.0.1:10911" in str(refused.value.hint)


def test_a_common_point_after_the_masters_log_start(tmp_path: Path) -> None:
    """The master has deleted its first segments: what is left of both is enough."""
    with diverged(tmp_path, 9, 1200, 100, 100) as one:
        later = replace(one.facts, start=one.new.log.segments[2].offset)
        plan = one.plan(facts=later, verify_all=True)
        assert plan.divergence is not None
        assert (plan.divergence.common, plan.divergence.compared_from) == (one.common, later.start)


def test_a_slave_and_other_file_sizes_are_refused(tmp_path: Path) -> None:
    with diverged(tmp_path, 10, 50, 5, 5) as one:
        with pytest.raises(Refused, match="is a slave"):
            one.plan(facts=replace(one.facts, role="SLAVE"))
        with pytest.raises(CannotRepair, match="segment size is 4096"):
            one.plan(facts=replace(one.facts, segment_size=4096))


def flipped(root: Path, offset: int) -> None:
    path = sorted((root / "commitlog").iterdir())[offset // 65536]
    with path.open("r+b") as file:
        file.seek(offset % 65536)
        (byte,) = file.read(1)
        file.seek(offset % 65536)
        file.write(bytes((byte ^ 1,)))


@pytest.mark.leaves
@pytest.mark.parametrize("which", ["probed", "in the window", "the last"])
def test_a_damaged_record_is_no_divergence(which: str, tmp_path: Path) -> None:
    """A bit of a field that no CRC covers: that record differs, and those after it do not. Nothing is cut for it."""
    with diverged(tmp_path, 11, 400, 50, 50) as one:
        heads = records(one.old)
        common = [at for at in heads if at < one.common]
        at = {"probed": 65536, "in the window": common[333], "the last": common[-2]}[which]
        flipped(one.old, at + 36)  # bornTimestamp
        with pytest.raises(CannotRepair, match="is damaged") as error:
            one.plan()
        assert error.value.offset == at


class Rotten:
    """The new master's log, with a byte changed in each of some records (physical offsets)."""

    def __init__(self, log: OtherLog, bad: list[int]) -> None:
        self._log = log
        self._bad = [at + 36 for at in bad]  # bornTimestamp

    def read(self, offset: int, length: int) -> bytes:
        data = bytearray(self._log.read(offset, length))
        for at in self._bad:
            if offset <= at < offset + length:
                data[at - offset] ^= 1
        return bytes(data)


@pytest.mark.parametrize("many", [2, 40])
@pytest.mark.parametrize("ours", [0, 50])
def test_damage_of_several_records_at_the_master_is_no_divergence(ours: int, many: int, tmp_path: Path) -> None:
    """A page of small records rots at the master: what both have after it is not cut here."""
    with diverged(tmp_path, 15, 400, ours, 50) as one, HaReader("127.0.0.1", one.port) as reader:
        common = [at for at in records(one.old) if at < one.common]
        bad = common[-5 - many : -5]
        with pytest.raises(CannotRepair, match="one of the two logs is damaged") as error:
            one.plan(other=Rotten(reader, bad))
        assert error.value.offset == bad[0]


@pytest.mark.leaves
def test_damage_before_the_divergence_is_refused(tmp_path: Path) -> None:
    with diverged(tmp_path, 12, 400, 50, 50) as one:
        common = [at for at in records(one.old) if at < one.common]
        flipped(one.old, common[350] + 92)  # its body
        with pytest.raises(CannotRepair, match="damaged"):
            one.plan()


@pytest.mark.parametrize("torn", [1, 90])
def test_an_old_master_that_crashed(torn: int, tmp_path: Path) -> None:
    """The end of its log is cut within a record, and the abort file is there."""
    with diverged(tmp_path, 13, 200, 60, 60) as one:
        last = max((one.old / "commitlog").iterdir())
        with last.open("r+b") as file:
            file.seek(one.end - int(last.name) - torn)
            file.write(bytes(torn))
        (one.old / "abort").touch()
        done = rewind(one)
        assert done.plan.divergence.common == one.common
        assert done.plan.messages in (59, 60)
        follows(one)


class Lying:
    """Another log that sends one of its bytes wrong, from some read on."""

    def __init__(self, one: Diverged, at_read: int, seed: int, cut: bool) -> None:
        self._one, self._at, self._rng, self._cut, self._reads = one, at_read, random.Random(seed), cut, 0

    def read(self, offset: int, length: int) -> bytes:
        self._reads += 1
        data = bytearray(one_read(self._one, offset, length))
        if self._reads >= self._at:
            if self._cut:
                raise PeerLost("the connection was closed")
            data[self._rng.randrange(len(data))] ^= 1
        return bytes(data)


def one_read(one: Diverged, offset: int, length: int) -> bytes:
    pieces = []
    while length:
        piece = one.new.log.read(offset, length)
        pieces.append(bytes(piece))
        offset, length = offset + len(piece), length - len(piece)
    return b"".join(pieces)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("at_read", [1, 4, 9])
def test_a_master_that_lies_or_cuts_the_connection(at_read: int, cut: bool, tmp_path: Path) -> None:
    """It ends with an error, or with a cut that is a record's boundary before the divergence: never after it."""
    with diverged(tmp_path, 14, 300, 50, 50) as one:
        before = stores.snapshot(one.old)
        lying = Lying(one, at_read, at_read, cut)
        if cut:
            with pytest.raises(PeerLost):
                one.plan(other=lying)
        else:
            with contextlib.suppress(Refused, CannotRepair, FormatError):
                plan = one.plan(other=lying)
                assert plan.divergence is not None
                assert plan.divergence.common <= one.common
                assert plan.divergence.common in records(one.old)
        assert stores.snapshot(one.old) == before


@pytest.mark.leaves("config-missing")
def test_offsets_are_brought_back(tmp_path: Path) -> None:
    """Of groups that have read what goes, and of delayed messages that were delivered; the others stay."""
    with diverged(tmp_path, 15, 90, 60, 30) as one:
        with MessageStore.open(small(one.old)) as store:
            for _ in range(7):
                assert store.put(message(DELAY="3")).ok
            ends = {queue_id: store.max_offset("T", queue_id) for queue_id in range(QUEUES)}
        table = {"T@readers": {str(queue_id): end for queue_id, end in ends.items()}, "T@slow": {"0": 1}}
        config = one.old / "config"
        config.mkdir(exist_ok=True)
        (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
        (config / "delayOffset.json").write_text('{"offsetTable":{"3":7}}')
        dry = one.plan()
        assert sorted((each.group, each.queue.queue_id, each.old) for each in dry.offsets.back) == [
            (DELIVERY, 2, 7),
            *(("readers", queue_id, ends[queue_id]) for queue_id in range(QUEUES)),
        ]
        done = rewind(one)
        assert done.ending is Ending.APPLIED
        assert done.plan.of_brokers == 7
        export, send = done.plan.messages_back(done.salvage)
        name = Path(str(done.salvage)).name
        assert export.endswith(f"salvage export {name} --topic T --output tail.jsonl")
        assert send == "rstore send --jsonl tail.jsonl --namesrv HOST:PORT"
        assert str(done.plan.delayed_back(done.salvage)).endswith(f"salvage replay {name} --into DIR")
        kept = fastjson.loads((config / "consumerOffset.json").read_text())["offsetTable"]
        lost = {queue_id: len(one.lost.get(("T", queue_id), ())) for queue_id in range(QUEUES)}
        assert kept["T@readers"] == {str(queue_id): ends[queue_id] - lost[queue_id] for queue_id in range(QUEUES)}
        assert kept["T@slow"] == {"0": 1}
        assert fastjson.loads((config / "consumerOffset.json.bak").read_text())["offsetTable"] == table
        assert fastjson.loads((config / "delayOffset.json").read_text())["offsetTable"] == {"3": 0}
        follows(one)


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    with diverged(tmp_path, 16, 50, 20, 20) as one:
        before = stores.snapshot(one.old)
        outcome = preview(RewindChange(Told(one)), Disk(), one.config)
        assert (outcome.ending, outcome.changes, outcome.plan.messages) == (Ending.PREVIEWED, True, 20)
        assert stores.snapshot(one.old) == before


@pytest.mark.wide
@pytest.mark.leaves("config-missing")
def test_killed_before_each_change_and_run_again(tmp_path: Path) -> None:
    with diverged(tmp_path, 17, 200, 150, 50) as one:
        config = one.old / "config"
        config.mkdir(exist_ok=True)
        with MessageStore.open(small(one.old)) as store:
            end = store.max_offset("T", 0)
        (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"T@g": {"0": end}}}))
        counting = FaultyDisk(None)
        whole = replace(one, old=stores.copy(one.old, tmp_path / "whole"))
        rewind(whole, counting)
        expected = log_of(whole.old)
        every = range(1, counting.changes_seen + 1)
        assert len(every) >= 20
        for number in every if WIDE else random.Random(17).sample(every, 3):
            copy = replace(one, old=stores.copy(one.old, tmp_path / f"killed-{number}"))
            disk = FaultyDisk(None)
            disk.kill_before(number)
            with pytest.raises(Killed):
                rewind(copy, disk)
            rewind(copy)
            assert log_of(copy.old) == expected
            assert_sound(copy.config)
            offsets = fastjson.loads((copy.old / "config" / "consumerOffset.json").read_text())["offsetTable"]
            assert offsets["T@g"]["0"] == end - len(one.lost["T", 0])
            repairs = sorted(path.parent for path in (copy.old / "salvage").glob("*/manifest.json"))
            name = next(path.name for path in repairs if "offsets" not in path.name)
            assert replayed(copy, name, tmp_path / f"put-back-{number}") == one.lost
