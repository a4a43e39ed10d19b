"""The same puts, put by RocketMQ 5's message store and by rstore at the store times that it gave: the same bytes in
every file; and each reads what the other left.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.format import names, property_crc
from engine.format.properties import SEPARATOR
from engine.format.record import MESSAGE_MAGIC_V2
from engine.log.results import PutResult
from engine.store import MessageStore
from tests.compat import apache, checks, holds5, puts, puts5
from tests.compat.apache import SMALL, Line
from tests.support.replay import Clock, replay

pytestmark = pytest.mark.interop

RELEASES = ("5.3.3", "5.5.0")
INDEXES_TAGS = frozenset({"5.5.0"})
DROPS_WHAT_A_BATCH_SHARES = frozenset({"5.5.0"})


PLAIN: Mapping[str, str] = {}
SEALED: Mapping[str, str] = {"enabledAppendPropCRC": "true"}
"""Records have property CRCs."""
LONG_TOPIC = f"{names.RETRY_PREFIX}{'a_group_of_a_long_name_' * 11}"[:255]
"""Its records take two bytes for its length."""


@dataclass(frozen=True)
class Twins:
    """A store that a release wrote, its results, and ours of the same puts."""

    release: str
    settings: Mapping[str, str]
    theirs: Path
    ours: Path
    results: list[Line]
    answers: list[PutResult]


@pytest.mark.parametrize("settings", [PLAIN, SEALED], ids=["plain", "property-crc"])
@pytest.mark.parametrize("release", RELEASES)
def test_the_same_puts_give_the_same_bytes_and_each_reads_the_other(
    release: str, settings: Mapping[str, str], tmp_path: Path
) -> None:
    """Puts of every kind over several segments, queue files and index files, with the settings of the release; one test
    a release and kind of record, as each start of its store takes five seconds. Stores with property CRCs are opened by
    a release that demands one of each record.
    """
    twins = make_twins(release, settings, tmp_path)
    compare(twins)
    mixed = put_into_theirs(twins, tmp_path / "mixed")
    read_by_theirs(twins, mixed, tmp_path / "copy")


def make_twins(release: str, given: Mapping[str, str], root: Path) -> Twins:
    made = puts.everything(2024, 500)
    made += [made[i] | {"topic": LONG_TOPIC} for i in range(40) if made[i]["kind"] == "normal"]
    try:
        results = puts5.write(release, root / "apache", made, SMALL, given)
    except apache.Missing as missing:
        pytest.skip(str(missing))
    assert {result["status"] for result in results} == {"PUT_OK"}
    times = [{"storeTimestamp": one["storeTimestamp"]} for one in results for _ in range(one["msgNum"])]
    clock = Clock()
    settings = checks.settings(root / "rstore", SMALL)
    settings = settings.with_changes(index_tags=release in INDEXES_TAGS, long_topics=True, other=dict(given))
    with MessageStore.open(settings, clock=clock) as store:
        answers = replay(store, clock, [as_its_records_have_it(put, release) for put in made], times)
        assert store.wait_dispatched()
        assert not store.findings
    return Twins(release, given, root / "apache", root / "rstore", results, answers)


def as_its_records_have_it(put: Line, release: str) -> Line:
    """A batch with the properties that the release's records of it have: rstore puts those of 4.9.8.

    MessageDecoder#messageProperties2String of 5.x ends with a separator (that of 4.9.8 takes it off), so the properties
    of a batch's messages come with one, and MessageExtEncoder#encode(MessageExtBatch) adds those that they share with
    one; that of 5.5.0 no longer adds them.
    """
    if put["kind"] != "batch":
        return put
    shared = "" if release in DROPS_WHAT_A_BATCH_SHARES else ended(puts.properties_string(put["properties"]))
    inner = [one | {"propertiesString": ended(one["propertiesString"]) + shared} for one in put["inner"]]
    return put | {"inner": inner, "properties": {}}


def ended(properties: str) -> str:
    return properties + SEPARATOR if properties else ""


def compare(twins: Twins) -> None:
    for answer, result in zip(twins.answers, twins.results, strict=True):
        assert answer.append is not None
        place = (answer.append.physical_offset, answer.append.queue_offset, answer.append.msg_id)
        assert place == (result["wroteOffset"], result["logicsOffset"], result["msgId"])
    for directory, least in (("commitlog", 3), ("consumequeue", 20)):
        theirs = contents(twins.theirs / directory)
        assert len(theirs) >= least
        assert contents(twins.ours / directory) == theirs, directory
    log = b"".join(contents(twins.theirs / "commitlog").values())
    assert MESSAGE_MAGIC_V2.to_bytes(4, "big") in log
    assert (log.count(property_crc.FRONT) >= len(places_of(twins))) == bool(twins.settings)
    theirs = contents(twins.theirs / "index")
    assert len(theirs) >= 2
    assert list(contents(twins.ours / "index").values()) == list(theirs.values())


def put_into_theirs(twins: Twins, store: Path) -> list[int]:
    """Its own files alone tell how records are written there.

    Returns:
        The physical offsets of the records.
    """
    shutil.copytree(twins.theirs, store)
    maker = puts.Maker(7)
    maker.until(60)
    with MessageStore.open(checks.settings(store, SMALL)) as opened:
        put = [line["physicalOffset"] for line in checks.put_all(opened, maker.made)]
        assert opened.wait_dispatched()
        assert not opened.findings
    return places_of(twins) + put


def read_by_theirs(twins: Twins, mixed: list[int], copy: Path) -> None:
    """The store that rstore made alone, and the one that it went on with."""
    shutil.copytree(twins.ours, copy)
    stores = {copy: places_of(twins), copy.with_name("mixed"): mixed}
    expected = {store: (units(store), contents(store / "commitlog")) for store in stores}
    unlucky = (puts.HOT, puts.unlucky_key(puts.HOT))
    given = {**SMALL.settings(), **twins.settings, **({"forceVerifyPropCRC": "true"} if twins.settings else {})}
    asked = [holds5.Asked(store, given, places, [unlucky]) for store, places in stores.items()]
    for one, opened in zip(asked, holds5.run(twins.release, asked), strict=True):
        assert opened.exit == apache.Exit.OPENED
        (held,) = opened.of_type("places")
        assert [int(place) for place in held["offsets"]] == one.places
        queues = {(line["topic"], line["queueId"]): line["places"] for line in opened.of_type("holds")}
        assert (queues, contents(one.store / "commitlog")) == expected[one.store]
        (keys,) = opened.of_type("keys")
        assert keys["offsets"][0]


def places_of(twins: Twins) -> list[int]:
    return [place for answer in twins.answers if answer.append is not None for place in answer.append.offsets]


def units(store: Path) -> dict[tuple[str, int], list[int]]:
    """By queue, the physical offset of each unit in its files."""
    queues: dict[tuple[str, int], list[int]] = {}
    for path in files(store / "consumequeue"):
        data = path.read_bytes()
        queue = (path.parents[1].name, int(path.parent.name))
        all_units = (data[at : at + 12] for at in range(0, len(data), 20))
        queues.setdefault(queue, []).extend(int.from_bytes(unit[:8]) for unit in all_units if any(unit[8:]))
    return queues


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in files(directory)}
