"""What a repair has cut is put back as new messages: each once, as it was; and only what should be."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import CannotRepair, InvalidArgument, Refused
from engine.files.disk import Disk
from engine.format import properties, sysflag
from engine.format.message import Message, decode
from engine.format.names import SCHEDULE_TOPIC
from engine.inspect.check.check import check
from engine.inspect.finding_codes import Severity
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover, plan_truncate
from engine.repair.replay.plan import ReplayRequest
from engine.repair.replay.planner import plan_replay
from engine.repair.salvage.undo import plan_undo, undo
from engine.replay import replay
from engine.store import MessageStore
from tests.conftest import Store
from tests.engine.repair import corpus
from tests.engine.repair.test_rules import damage, put, settings
from tests.support import golden, mutate, stores
from tests.support.checking import check_clean
from tests.support.salvaged import by_queue, cut, put_back, replayed
from tests.support.wide import sample

HALF, OPERATION = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
KINDS = {"flip-content", "flip-header", "lost-page", "torn-inner-file", "total-size", "magic", "combo"}


def in_the_middle(cases: list[corpus.Case], step: int) -> list[corpus.Case]:
    """Cases that damage the log in places that may have sound records behind them; every `step`-th of a kind."""
    return [case for kind in sorted(KINDS) for case in [c for c in cases if c["category"] == kind][::step]]


CASES = [*in_the_middle(corpus.fixture_cases(), 1), *in_the_middle(golden.cases(), 8)]


def problems(config: StoreConfig) -> set[tuple[str, str, str]]:
    """What `check` finds wrong."""
    found = check(Disk(), config).findings
    return {(f.code, f.where, f.message) for f in found if f.severity is not Severity.INFO}


def identity(message: dict[str, object]) -> tuple[object, ...]:
    """What a message keeps when it is put again."""
    return message["uniqKey"], message["bornTimestamp"], message["bodyCRC"], message["bodyLen"], message["keys"]


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("case", sample(CASES, 8), ids=lambda case: str(case["id"]))
def test_every_sound_message_of_a_damaged_store(
    case: corpus.Case, fixture_store: Store, fixture_copy: Store, golden_store: Store, golden_copy: Store
) -> None:
    ours = not case["id"].startswith("v")
    undamaged = (fixture_store if ours else golden_store)(case["base"])
    root = (fixture_copy if ours else golden_copy)(case["base"])
    mutate.apply(root, case["ops"])
    config = corpus.config(root, case)
    whole = {m["physicalOffset"]: m for m in corpus.whole_messages(case, undamaged, root, 0, 1 << 62)}
    every = {m["physicalOffset"]: m for m in corpus.messages(case)}
    behind = plan_recover(Disk(), config).log.end.records_after
    apply(Disk(), plan_recover(Disk(), config, cut=True))
    before = problems(config)  # recovery leaves damage that lies before its start
    if behind:
        plan = put_back(config)
        assert plan.share.messages > 0
        assert not plan.share.refused
    elif (root / "salvage").exists():
        with pytest.raises(CannotRepair):
            plan_replay(Disk(), config, ReplayRequest())
    assert problems(config) <= before
    there = {message.physical_offset: message for _, _, _, message in by_queue(config, damaged=True)}
    found = Counter(
        (m.properties.get("UNIQ_KEY"), m.born_timestamp, m.body_crc, len(m.body), m.properties.get("KEYS"))
        for m in there.values()
    )
    assert not Counter(map(identity, whole.values())) - found
    assert len(there) <= len(every)
    marks = Counter(message.properties.get(properties.REPLAYED) for message in there.values())
    assert max((times for mark, times in marks.items() if mark is not None), default=1) == 1


# --- what a message keeps ---------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> StoreConfig:
    """A store of 60 messages with one lost; 39 lie behind it, saved by `recover --cut`."""
    offsets = put(tmp_path, 60, body=300)
    damage(tmp_path, offsets[20] + 100, b"\xff")
    return settings(tmp_path)


def test_a_message_keeps_what_it_is(damaged: StoreConfig) -> None:
    before = {m.properties["UNIQ_KEY"]: m for _, _, _, m in by_queue(damaged) if m.crc_ok}
    name = cut(damaged)
    cut_off = {m.properties["UNIQ_KEY"] for _, _, _, m in by_queue(damaged)}
    plan = put_back(damaged)
    assert plan.share.messages == 39
    for topic, queue_id, queue_offset, new in by_queue(damaged):
        old = before[new.properties["UNIQ_KEY"]]
        assert (topic, queue_id, new.body, new.flag, new.born_timestamp, new.born_host, new.store_host) == (
            old.topic, old.queue_id, old.body, old.flag, old.born_timestamp, old.born_host, old.store_host
        )  # fmt: skip
        assert new.queue_offset == queue_offset
        if new.properties["UNIQ_KEY"] in cut_off:
            assert new.properties == old.properties
            continue
        assert new.properties == {**old.properties, "RSTORE_REPLAYED": f"{name}:{old.physical_offset}"}
        assert new.store_timestamp >= old.store_timestamp
    assert {m.properties["UNIQ_KEY"] for _, _, _, m in by_queue(damaged)} == before.keys()
    with MessageStore.open(damaged) as store:
        assert [bytes(decode(m).body) for m in store.query("T", "key45").messages] == [before["unique000045"].body]


def test_the_plan_is_what_happens(damaged: StoreConfig) -> None:
    cut(damaged)
    root = Path(damaged.store_path_root_dir)
    before = stores.snapshot(root)
    dry = plan_replay(Disk(), damaged, ReplayRequest())
    assert stores.snapshot(root) == before
    plan = plan_replay(Disk(), damaged, ReplayRequest())
    ends = {(t, q): o + 1 for t, q, o, _ in by_queue(damaged)}
    assert dry.to_json(done=False) == plan.to_json(done=False)
    assert replay(Disk(), plan) == dry.share.messages
    put_there = Counter((t, q) for t, q, _, m in by_queue(damaged) if properties.REPLAYED in m.properties)
    for queue in dry.to_json(done=False)["queues"]:
        key = queue["topic"], queue["queueId"]
        assert queue["fromOffset"] == ends.get(key, 0)
        assert queue["toOffset"] == queue["fromOffset"] + put_there.pop(key)
        new = [o for t, q, o, m in by_queue(damaged) if (t, q) == key and properties.REPLAYED in m.properties]
        assert new == list(range(queue["fromOffset"], queue["toOffset"]))
    assert not put_there


def test_once_is_enough_unless_asked_again(damaged: StoreConfig) -> None:
    cut(damaged)
    put_back(damaged)
    once = plan_replay(Disk(), damaged, ReplayRequest())
    assert isinstance(once.refusal, Refused)
    with pytest.raises(Refused):
        replay(Disk(), once)
    assert set(replayed(damaged).values()) == {1}
    put_back(damaged, again=True)
    assert set(replayed(damaged).values()) == {2}
    assert isinstance(plan_replay(Disk(), damaged, ReplayRequest()).refusal, Refused)


def test_topics_one_after_the_other(tmp_path: Path) -> None:
    offsets = put(tmp_path, 10, body=300)
    put(tmp_path, 10, topic="U", first=10, body=300)
    put(tmp_path, 10, first=20, body=300)
    damage(tmp_path, offsets[5] + 100, b"\xff")
    config = settings(tmp_path)
    cut(config)
    assert put_back(config, topics=("U",)).share.messages == 10
    assert isinstance(plan_replay(Disk(), config, ReplayRequest(topics=("U",))).refusal, Refused)
    rest = put_back(config)
    assert (rest.share.messages, set(rest.share.queues)) == (14, {("T", 0), ("T", 1)})
    assert set(replayed(config).values()) == {1}
    with pytest.raises(InvalidArgument):
        plan_replay(Disk(), config, ReplayRequest("nothing"))


def test_what_the_log_has_is_passed_over(damaged: StoreConfig) -> None:
    cut(damaged)
    undo(Disk(), plan_undo(Disk(), damaged))
    with pytest.raises(CannotRepair):
        plan_replay(Disk(), damaged, ReplayRequest())
    name = next(path.name for path in (Path(damaged.store_path_root_dir) / "salvage").iterdir())
    with pytest.raises(Refused):
        plan_replay(Disk(), damaged, ReplayRequest(name))
    # As if the files had been copied back by hand.
    (Path(damaged.store_path_root_dir) / "salvage" / name / "undone.json").unlink()
    (Path(damaged.store_path_root_dir) / "salvage" / name / "undoing.json").unlink()
    apply(Disk(), plan_recover(Disk(), damaged, bridge=True))
    plan = plan_replay(Disk(), damaged, ReplayRequest(name))
    assert (plan.share.messages, plan.refusal, plan.changed) == (0, None, False)
    assert sum(records for records, _ in plan.share.skipped.values()) == 39


def test_what_was_truncated(tmp_path: Path) -> None:
    offsets = put(tmp_path, 60)
    config = settings(tmp_path)
    apply(Disk(), plan_truncate(Disk(), config, to_offset=offsets[40]), command="truncate")
    put(tmp_path, 5, first=60)
    plan = put_back(config)
    assert plan.share.messages == 20
    assert len({m.properties["UNIQ_KEY"] for _, _, _, m in by_queue(config)}) == 65


@pytest.mark.leaves("unit-missing")
def test_a_store_that_is_not_recovered_is_refused(damaged: StoreConfig) -> None:
    cut(damaged)
    root = Path(damaged.store_path_root_dir)
    (root / "consumequeue" / "T" / "0" / "00000000000000000000").unlink()
    with pytest.raises(Refused, match="recovered"):
        plan_replay(Disk(), damaged, ReplayRequest())


def test_a_note_that_cant_be_read_is_refused(damaged: StoreConfig) -> None:
    name = cut(damaged)
    put_back(damaged)
    (Path(damaged.store_path_root_dir) / "salvage" / name / "replayed.json").write_text("{}")
    with pytest.raises(Refused, match="can't be read"):
        plan_replay(Disk(), damaged, ReplayRequest())


def test_another_replay_is_under_way(damaged: StoreConfig) -> None:
    name = cut(damaged)
    put_back(damaged)
    note = Path(damaged.store_path_root_dir) / "salvage" / name / "replayed.json"
    said = json.loads(note.read_text())
    said["runs"][0]["done"] = False
    note.write_text(json.dumps(said))
    with pytest.raises(Refused, match="interrupted"):
        plan_replay(Disk(), damaged, ReplayRequest(topics=("T",)))
    plan = plan_replay(Disk(), damaged, ReplayRequest())
    assert (plan.resumed, plan.share.messages) == (True, 0)
    over = plan_replay(Disk(), damaged, ReplayRequest(again=True))
    assert (over.resumed, over.share.messages) == (False, 39)
    assert replay(Disk(), plan) == 39
    assert isinstance(plan_replay(Disk(), damaged, ReplayRequest()).refusal, Refused)


def test_starting_over_what_was_interrupted(damaged: StoreConfig) -> None:
    name = cut(damaged)
    put_back(damaged)
    note = Path(damaged.store_path_root_dir) / "salvage" / name / "replayed.json"
    said = json.loads(note.read_text())
    said["runs"][0] |= {"done": False, "end": -1}  # before the log's first byte: it has lost its front since
    note.write_text(json.dumps(said))
    with pytest.raises(Refused, match="start of the log was deleted"):
        plan_replay(Disk(), damaged, ReplayRequest())
    put_back(damaged, again=True)
    assert set(replayed(damaged).values()) == {2}
    assert [run["done"] for run in json.loads(note.read_text())["runs"]] == [True]


# --- another store ----------------------------------------------------------------------------------------------------


def test_into_a_new_store_and_another(damaged: StoreConfig, tmp_path: Path) -> None:
    cut(damaged)
    root = Path(damaged.store_path_root_dir)
    new = tmp_path / "other" / "new"
    plan = put_back(damaged, into=new)
    assert plan.target.make
    there = StoreConfig(store_path_root_dir=new)
    assert len(replayed(there)) == 39
    assert not replayed(damaged)
    check_clean(new)
    sizes = {path.stat().st_size for path in (new / "commitlog").iterdir()}
    assert sizes == {path.stat().st_size for path in (root / "commitlog").iterdir()}
    other = tmp_path / "third"
    other.mkdir()
    put(other, 5)
    put_back(damaged, into=other)
    assert len(replayed(settings(other))) == 39
    assert sum(1 for _ in by_queue(settings(other))) == 44
    check_clean(other, settings(other))
    for into in (new, other):
        assert isinstance(plan_replay(Disk(), damaged, ReplayRequest(into=into)).refusal, Refused)
    put_back(damaged, into=root)
    assert isinstance(plan_replay(Disk(), damaged, ReplayRequest()).refusal, Refused)
    undone = plan_replay(Disk(), damaged, ReplayRequest(into=tmp_path / "fourth"))
    assert undone.refusal is None


# --- delayed messages, halves, light queues ---------------------------------------------------------------------------


def put_all(config: StoreConfig, messages: list[Message]) -> list[int]:
    """Put them; their physical offsets."""
    offsets = []
    with MessageStore.open(config) as store:
        for message in messages:
            result = store.put(message)
            assert result.append is not None, result
            offsets.append(result.append.physical_offset)
    return offsets


def named(topic: str, unique: str, **more: str) -> Message:
    return Message(topic, unique.encode() * 20, properties={"UNIQ_KEY": unique, **more}, born_timestamp=1)


def test_delayed_messages(tmp_path: Path) -> None:
    config = settings(tmp_path)
    delivered = named("T", "delivered", DELAY="1")
    put_all(config, [named("T", "kept"), named("T", "lost")])
    offsets = put_all(config, [delivered, named("T", "due", DELAY="1"), named("T", "later", DELAY="18")])
    with MessageStore.open(config) as store:
        waiting = store.look_message(offsets[0])
        assert waiting is not None
        copy = Message(
            "T", waiting.body, properties={**waiting.properties, "DELAY": "0"}, born_timestamp=waiting.born_timestamp
        )
        assert store.put(copy).ok
    damage(tmp_path, offsets[0] - 60, b"\xff\xff")
    cut(config)
    disk = Disk()
    disk.now_ms = lambda: waiting.store_timestamp + 60_000  # type: ignore[method-assign]
    plan = plan_replay(disk, config, ReplayRequest())
    assert (plan.share.at_once, plan.share.waiting) == (1, 1)
    replay(disk, plan)
    found = [(t, q, m.properties["UNIQ_KEY"], m.properties.get("DELAY")) for t, q, _, m in by_queue(config)]
    assert sorted(found, key=str) == [
        (SCHEDULE_TOPIC, 17, "later", "18"),
        ("T", 0, "delivered", None),
        ("T", 0, "due", None),
        ("T", 0, "kept", None),
    ]


def test_the_delay_that_is_left(tmp_path: Path) -> None:
    config = settings(tmp_path)
    put_all(config, [named("T", "kept"), named("T", "lost")])
    (offset,) = put_all(config, [named("T", "later", DELAY="18")])
    damage(tmp_path, offset - 60, b"\xff\xff")
    cut(config)
    stored = plan_replay(Disk(), config, ReplayRequest()).report.sound.first
    disk = Disk()
    disk.now_ms = lambda: stored + 7_200_000 - 100_000  # type: ignore[method-assign]
    replay(disk, plan_replay(disk, config, ReplayRequest()))
    (found,) = [(q, m.properties) for t, q, _, m in by_queue(config) if t == SCHEDULE_TOPIC]
    assert (found[0], found[1]["DELAY"], found[1]["REAL_TOPIC"]) == (5, "6", "T")  # 2 min, as 1 min is too early


def test_halves_and_what_settles_them(tmp_path: Path) -> None:
    config = settings(tmp_path)

    def half(unique: str) -> Message:
        return named(HALF, unique, REAL_TOPIC="T", REAL_QID="0", TRAN_MSG="true")

    def settle(offset: int) -> Message:
        return Message(OPERATION, str(offset).encode(), properties={"TAGS": "d"})

    put_all(config, [half("kept-settled-behind"), half("kept-open"), named("T", "lost")])
    offsets = put_all(config, [half("settled"), half("open"), settle(0), settle(2), named("T", "plain")])
    damage(tmp_path, offsets[0] - 30, b"\xff\xff")
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:  # the body of the lost one
        file.seek(offsets[0] - 150)
        file.write(b"\xff")
    cut(config)
    plan = put_back(config)
    found = [(t, o, m.properties.get("UNIQ_KEY"), m.body) for t, _, o, m in by_queue(config)]
    assert [(o, unique) for t, o, unique, _ in found if t == HALF] == [
        (0, "kept-settled-behind"),
        (1, "kept-open"),
        (2, "open"),
    ]
    assert [body for t, _, _, body in found if t == OPERATION] == [b"0"]
    assert [unique for t, _, unique, _ in found if t == "T"] == ["plain"]
    assert {why.name: records for why, (records, _) in plan.share.skipped.items()} == {
        "SETTLED": 1,
        "STALE_OPERATION": 1,
    }


def test_prepared_and_committed_records(tmp_path: Path) -> None:
    config = settings(tmp_path)
    put_all(config, [named("T", "kept"), named("T", "lost")])
    prepared = Message("T", b"p" * 50, sys_flag=sysflag.TRANSACTION_PREPARED, properties={"UNIQ_KEY": "a"})
    committed = Message(
        "T",
        b"p" * 50,
        sys_flag=sysflag.TRANSACTION_COMMIT,
        properties={"UNIQ_KEY": "a"},
        prepared_transaction_offset=99_999,
    )
    offsets = put_all(config, [prepared, committed])
    damage(tmp_path, offsets[0] - 60, b"\xff\xff")
    cut(config)
    plan = put_back(config)
    assert plan.share.messages == 1
    (found,) = [m for _, _, _, m in by_queue(config) if m.properties["UNIQ_KEY"] == "a"]
    assert sysflag.transaction_type(found.sys_flag) == sysflag.TRANSACTION_COMMIT
    assert found.prepared_transaction_offset == 0


def test_light_queues(fixture_copy: Store) -> None:
    root, case = fixture_copy("lmq"), {"base": "lmq"}
    config = corpus.config(root, case)
    before = Counter((t, q, m.properties.get("UNIQ_KEY")) for t, q, _, m in by_queue(config) if t != SCHEDULE_TOPIC)
    some = sorted({m.physical_offset for _, _, _, m in by_queue(config)})
    apply(Disk(), plan_truncate(Disk(), config, to_offset=some[len(some) // 2]), command="truncate")
    assert isinstance(plan_replay(Disk(), StoreConfig(store_path_root_dir=root), ReplayRequest()).refusal, Refused)
    put_back(config)
    check_clean(root, config)
    after = Counter((t, q, m.properties.get("UNIQ_KEY")) for t, q, _, m in by_queue(config) if t != SCHEDULE_TOPIC)
    assert not before - after


def test_what_cant_be_put_is_named(tmp_path: Path) -> None:
    config = settings(tmp_path)
    put_all(config, [named("T", "kept"), named("T", "lost")])
    (offset,) = put_all(config, [named("Topic", "a")])
    put_all(config, [named("T", "b")])
    data = bytearray((tmp_path / "commitlog" / f"{0:020d}").read_bytes())
    at = data.index(b"\x05Topic", offset) + 1
    data[at : at + 5] = b"../.."
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(data)
    damage(tmp_path, offset - 60, b"\xff\xff")
    apply(Disk(), plan_recover(Disk(), config, cut=True))
    plan = put_back(config)
    assert [(place, topic) for place, topic, _ in plan.share.refused] == [(offset, "../..")]
    assert plan.share.messages == 1
