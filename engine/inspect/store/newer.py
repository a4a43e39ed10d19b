"""What RocketMQ 5 keeps in a store, known from the store's own files: what is sound is read.

A 5.x broker writes the same commit log, and by default the same consume queues and index files; the rest is its own:
a timer wheel whose entries point into the log, queues in RocksDB or with a unit a batch, compacted copies of a topic,
epochs of a controller, older messages in tiered files. A repair that doesn't know them would leave them pointing at
what is gone. So every part is named with what it means, and each command asks before it plans a change
(engine.inspect.store.change_gate).

Sources: StorePathConfigHelper, BatchConsumeQueueStore, RocksDBConsumeQueueStore, TimerMessageStore, CompactionStore,
MessageStoreConfig#getStorePathEpochFile, RocksDBConfigManager, DefaultMetadataStore, MessageConst#PROPERTY_CRC32.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import NewerStore, NextStep, RStoreError, StorageError
from engine.files.listing import is_lost_found
from engine.files.rocksdb import has_rocksdict
from engine.files.written import is_zero
from engine.format import names
from engine.format.property_crc import CrcDemand, is_sealed
from engine.format.record import BLANK_SIZE, MAGIC_BYTES, MAGICS, POSITION_MAGIC, SIZE_AND_MAGIC, total_size_at
from engine.format.rocksdb_config import DATABASE_V2, DATABASES
from engine.inspect.next_step import command_line
from engine.inspect.store.batch_topics import batch_by_attribute

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.files.entry import Entry

ROCKSDB_QUEUES = "consume queues in RocksDB"
BATCH_QUEUES = "batch consume queues"
TIMER = "timer messages"
COMPACTION = "compacted topics"
CONTROLLER = "epochs of a controller"
PROPERTY_CRC = "a CRC of the properties in each record"
PROPERTY_CRC_FORCED = "a CRC of the properties that its broker demands of each record"
TIERED = "older messages in tiered files"
ROCKSDB_CONFIG = "topics, groups and offsets in RocksDB"
ROCKSDB_STORE = "timers, transactions or index in RocksDB"
ROCKSDB_POPS = "pops that wait in RocksDB"
TIMER_SNAPSHOTS = "snapshots of the timer wheel, which a broker loads in place of it"
FILES = "other files of RocketMQ 5"
DLEDGER = "a log in DLedger's entries"
"""Of RocketMQ 4.9 as well."""

FORCED = "forceVerifyPropCRC"
"""With it, a broker's start ends the log at the first record whose property CRC is not right, or missing (#7480)."""

_APPENDED, _LONG_TOPICS = "enabledAppendPropCRC", "autoMessageVersionOnTopicLen"
KEYS = frozenset({FORCED, _APPENDED, _LONG_TOPICS})
"""Settings that only RocketMQ 5 has and that count for what is written here, too."""
_SNAPSHOT = re.compile(rf"{names.TIMER_WHEEL}\.[0-9]+")
"""Source: TimerWheel#backup (5.5.0, timerWheelSnapshotFlush), PopConsumerService (kvStore/)."""
_FRONT = 1 << 20
"""Bytes of a segment that are looked at, for as many records at most:"""
_RECORDS = 8
_CONFIG_DIRECTORIES = (*DATABASES.values(), DATABASE_V2)
OWN_CONFIG = (names.TIMER_CHECK, "timermetrics", "transactionMetrics")
"""Files of config/ by which a store is known as RocketMQ 5's."""
_TIERED_METADATA = "tieredStoreMetadata.json"
_TABLE_END = 0x88E241B785F4CFF7.to_bytes(8, "little")


@dataclass(frozen=True, slots=True)
class NewerPart:
    """One thing that RocketMQ 5 keeps. `where`: relative to the store, or a setting."""

    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.what} ({self.where})"


@dataclass(frozen=True, slots=True)
class Newer:
    """What was found; false when nothing was.

    Attributes:
        parts: what RocketMQ 5 keeps here, the weightiest first.
        batch_topics: topics whose consume queues have a unit a batch.
        unread: why the consume queues in RocksDB are not read; None where they are.
        reads_config: whether topics, groups and offsets in RocksDB are read.
    """

    parts: tuple[NewerPart, ...] = ()
    batch_topics: frozenset[str] = frozenset()
    unread: RStoreError | None = None
    reads_config: bool = False

    def __bool__(self) -> bool:
        return bool(self.parts)

    def has(self, what: str) -> bool:
        """Whether a part of this kind is there."""
        return any(part.what == what for part in self.parts)

    def where(self, what: str) -> str:
        """Where the part of this kind is; empty without one."""
        return next((part.where for part in self.parts if part.what == what), "")

    @property
    def kind(self) -> str:
        """Whose store it is: `RocketMQ 5`, or `DLedger` where nothing else tells that."""
        return "DLedger" if all(part.what == DLEDGER for part in self.parts) else "RocketMQ 5"

    @property
    def described(self) -> str:
        """The store in words, as the subject of a refusal."""
        if self.kind == "DLedger":
            return f"a DLedger store ({self.where(DLEDGER)})"
        return f"a RocketMQ 5 store, with {self}"

    @property
    def not_looked_at(self) -> tuple[NewerPart, ...]:
        """Parts that hold what is not read here."""
        read = {FILES, PROPERTY_CRC, PROPERTY_CRC_FORCED, CONTROLLER, BATCH_QUEUES, TIMER, COMPACTION, DLEDGER}
        read |= set() if self.no_queue_files else {ROCKSDB_QUEUES}
        read |= set() if self.no_config_files else {ROCKSDB_CONFIG}
        return tuple(part for part in self.parts if part.what not in read)

    @property
    def not_counted(self) -> tuple[str, ...]:
        """Where queues are whose messages `status` does not count."""
        return (self.where(ROCKSDB_QUEUES),) if self.no_queue_files else ()

    @property
    def some_queues(self) -> bool:
        """Whether the queues that are read are not all."""
        return self.no_queue_files or bool(self.batch_topics)

    @property
    def no_queue_files(self) -> bool:
        """Whether the consume queues are in RocksDB, and not read."""
        return self.has(ROCKSDB_QUEUES) and self.unread is not None

    @property
    def no_config_files(self) -> bool:
        """Whether topics, groups and offsets are in RocksDB, and not read."""
        return self.has(ROCKSDB_CONFIG) and not self.reads_config

    @property
    def queue_database(self) -> str:
        """Name of the directory with consume queues in RocksDB; empty where there is no database."""
        return self.where(ROCKSDB_QUEUES).rpartition("/")[0]

    @property
    def queues_set_aside(self) -> bool:
        """Whether a repair set the database aside, and no broker has made another one since."""
        return self.where(ROCKSDB_QUEUES).startswith(f"{names.QUARANTINE}/")

    def is_batch(self, topic: str) -> bool:
        """Whether this topic has batch consume queues in files, which engine.inspect.store.batch_queue reads."""
        return topic in self.batch_topics and not self.no_queue_files

    def hides(self, topic: str) -> bool:
        """Whether this topic has consume queues that are not read as those of 4.9."""
        return self.no_queue_files or topic in self.batch_topics

    def __str__(self) -> str:
        return ", ".join(map(str, self.parts))

    def to_json(self) -> list[dict[str, str]]:
        """One object a part."""
        return [{"what": part.what, "where": part.where} for part in self.parts]


NOT_NEWER = Newer()


def is_rocksdb(disk: Disk, directory: str) -> bool:
    """Whether the directory is a RocksDB database. Raises StorageError."""
    return _rocksdb_sign(disk, directory) is not None


def newer_parts(
    disk: Disk,
    config: StoreConfig,
    root: str,
    entries: Iterable[Entry],
    log: Sequence[str],
    *,
    only_topics: bool = False,
    dledger: str | None = None,
) -> Newer:
    """Look for what RocketMQ 5 keeps. `entries`: of the store's directory; `log`: paths of its segments, in order.
    `dledger`: where the entries of a DLedger store are.

    `only_topics`: consumequeue/ was listed, and holds directories alone (there may be tens of thousands of them).

    Raises:
        StorageError: a directory can't be read.
    """
    present = {entry.name for entry in entries}
    parts: list[NewerPart] = [] if dledger is None else [NewerPart(DLEDGER, dledger)]
    looked = None if only_topics else names.CONSUMEQUEUE
    for name in sorted(n for n in present if n.startswith("consumequeue_r") or n == looked):
        sign = _rocksdb_sign(disk, os.path.join(root, name))
        if sign:
            parts.append(NewerPart(ROCKSDB_QUEUES, f"{name}/{sign}"))
            break
    else:
        parts += _set_aside(disk, root)
    if all(part.what == DLEDGER for part in parts) and "rocksdb" in config.other.get("storeType", "").lower():
        parts.append(NewerPart(ROCKSDB_QUEUES, f"storeType={config.other['storeType']}"))
    batch = _directories(disk, os.path.join(root, names.BATCHCONSUMEQUEUE))
    by_attribute = batch_by_attribute(disk, root)
    if batch or by_attribute:
        where = f"{names.BATCHCONSUMEQUEUE}/" if batch else f"{names.CONFIG}/topics.json"
        parts.append(NewerPart(BATCH_QUEUES, where))
    parts += _tiered(disk, config, root)
    kinds = (names.COMPACTION_LOG, names.COMPACTION_QUEUE)
    if any(_directories(disk, os.path.join(root, names.COMPACTION, one)) for one in kinds):
        parts.append(NewerPart(COMPACTION, f"{names.COMPACTION}/"))
    if names.EPOCH_FILE in present and _is_filled(disk, os.path.join(root, names.EPOCH_FILE)):
        parts.append(NewerPart(CONTROLLER, names.EPOCH_FILE))
    if names.TIMER_LOG in present and _holds_files(disk, os.path.join(root, names.TIMER_LOG)):
        parts.append(NewerPart(TIMER, f"{names.TIMER_LOG}/"))
    config_dir = os.path.join(root, names.CONFIG)
    own = [name for name in _CONFIG_DIRECTORIES if _rocksdb_sign(disk, os.path.join(config_dir, name))]
    if own:
        parts.append(NewerPart(ROCKSDB_CONFIG, f"config/{own[0]}/"))
    parts += (NewerPart(TIMER_SNAPSHOTS, name) for name in sorted(present) if _SNAPSHOT.fullmatch(name))
    parts += (
        NewerPart(what, f"{name}/")
        for name, what in ((names.ROCKSDB_STORE, ROCKSDB_STORE), ("kvStore", ROCKSDB_POPS))
        if name in present and _has_tables(disk, os.path.join(root, name))
    )
    place = property_crc_place(disk, config, log)
    if place:
        parts.append(NewerPart(PROPERTY_CRC, place))
    if is_true(config, FORCED):
        parts.append(NewerPart(PROPERTY_CRC_FORCED, f"{FORCED}=true"))
    rest: list[str] = [name for name in (names.TIMER_WHEEL, names.ROCKSDB_STORE, names.COMPACTION) if name in present]
    rest = [name for name in rest if _is_filled(disk, os.path.join(root, name))]
    ours = disk.exists(os.path.join(config_dir, names.TIMER_PROGRESS))  # then the timer's checkpoint is, too
    own_config = [name for name in OWN_CONFIG if not (ours and name == names.TIMER_CHECK)]
    rest += [f"config/{name}" for name in own_config if disk.exists(os.path.join(config_dir, name))]
    if parts or not rest:
        return Newer(tuple(parts), by_attribute.union(batch), reads_config=bool(own) and has_rocksdict())
    return Newer((NewerPart(FILES, rest[0]),))


def refuse_verdict(config: StoreConfig, root: str, newer: Newer) -> None:
    """Raises NewerStore when the queues are in RocksDB, or the log is DLedger's: their recovery is another, and not
    computed."""
    what = ""
    if newer.has(DLEDGER):
        what = f"a DLedger store ({newer.where(DLEDGER)})"
    elif newer.has(ROCKSDB_QUEUES):
        what = f"a RocketMQ 5 store with its {ROCKSDB_QUEUES} ({newer.where(ROCKSDB_QUEUES)})"
    if what:
        raise NewerStore(
            f"{what}: what its broker does at its start is not computed",
            path=root,
            next_step=NextStep(command_line(config, "check"), "reads it and reports what is wrong"),
        )


def refuse_queue(config: StoreConfig, root: str, newer: Newer, topic: str) -> None:
    """Raises NewerStore when this topic's consume queues are of a kind that is not read."""
    if newer.hides(topic):
        what, hint = f"topic {topic} has {BATCH_QUEUES}, which rstore reads with get and dump alone", None
        if newer.no_queue_files:
            what = f"the store has its {ROCKSDB_QUEUES} ({newer.where(ROCKSDB_QUEUES)}), which can't be read"
            hint = str(newer.unread)
        raise NewerStore(
            what,
            path=root,
            hint=hint,
            next_step=NextStep(
                command_line(config, "dump", "commitlog", "--topic", topic),
                "shows its messages, which are in the log, with their queue and queue offset",
            ),
        )


def refuse_offsets(config: StoreConfig, root: str, newer: Newer) -> None:
    """Raises NewerStore when the offsets of consumer groups are where they are not read."""
    if newer.no_config_files:
        raise NewerStore(
            f"the store has its {ROCKSDB_CONFIG} ({newer.where(ROCKSDB_CONFIG)}): the package rocksdict reads them, "
            "and is not installed",
            path=root,
            hint="pip install 'rstore[rocksdb]'",
        )


def _rocksdb_sign(disk: Disk, directory: str) -> str | None:
    """The file in a directory that only RocksDB writes: CURRENT, which names a manifest, a manifest, or a table.

    An interrupted copy, or a hand that cleaned up, may have left any of them alone.
    """
    if not disk.is_dir(directory):
        return None
    path = os.path.join(directory, "CURRENT")
    entry = disk.look(path)
    if entry is not None and entry.is_file and disk.read_file(path, 9) == b"MANIFEST-":
        return "CURRENT"
    others = [one for one in disk.scandir(directory) if one.is_file]  # a directory is a topic, whatever its name
    manifest = next((one.name for one in others if one.name.startswith("MANIFEST-")), None)
    return manifest or next((one.name for one in others if one.name.endswith(".sst") and _is_table(disk, one)), None)


def _set_aside(disk: Disk, root: str) -> list[NewerPart]:
    """Queues in RocksDB that a repair set aside, where none are in their place: neither a database nor files."""
    where = f"{names.QUARANTINE}/{names.CONSUMEQUEUE}"
    sign = _rocksdb_sign(disk, os.path.join(root, where))
    if sign is None:  # as of nearly every store, whose queues may be tens of thousands: they are not listed for this
        return []
    place = os.path.join(root, names.CONSUMEQUEUE)
    if disk.is_dir(place) and disk.scandir(place):
        return []
    return [NewerPart(ROCKSDB_QUEUES, f"{where}/{sign}")]


def _is_table(disk: Disk, entry: Entry) -> bool:
    """Whether the file ends as a table of RocksDB does (BlockBasedTableBuilder: kBlockBasedTableMagicNumber)."""
    if entry.size < len(_TABLE_END):
        return False
    reader = disk.open_reader(entry.path)
    try:
        return reader.read(entry.size - len(_TABLE_END), len(_TABLE_END)) == _TABLE_END
    finally:
        reader.close()


def _has_tables(disk: Disk, directory: str) -> bool:
    """Whether a RocksDB database holds anything: tables, or a log that is not empty."""
    if not disk.is_dir(directory):
        return False
    return any(one.is_file and one.size and one.name.endswith((".sst", ".log")) for one in disk.scandir(directory))


def _directories(disk: Disk, directory: str) -> list[str]:
    if not disk.is_dir(directory):
        return []
    return [entry.name for entry in disk.scandir(directory) if entry.is_directory and not is_lost_found(entry)]


def _is_filled(disk: Disk, path: str) -> bool:
    """Whether a file has a length, or a directory an entry."""
    return bool(disk.scandir(path)) if disk.is_dir(path) else disk.stat(path).size > 0


def _holds_files(disk: Disk, directory: str) -> bool:
    """Whether there is a file in it with anything in it."""
    if not disk.is_dir(directory):
        return False
    return any(entry.is_file and not is_zero(disk, entry.path) for entry in disk.scandir(directory))


def _tiered(disk: Disk, config: StoreConfig, root: str) -> list[NewerPart]:
    if disk.exists(os.path.join(root, names.CONFIG, _TIERED_METADATA)):
        return [NewerPart(TIERED, f"config/{_TIERED_METADATA}")]
    plugin = config.other.get("messageStorePlugIn", "")
    return [NewerPart(TIERED, f"messageStorePlugIn={plugin}")] if "Tiered" in plugin else []


def crc_demand(config: StoreConfig, *, kept: bool) -> CrcDemand:
    """Which records' property CRCs are judged. `kept`: the store's broker writes them (`PROPERTY_CRC`).

    Source: CommitLog#checkMessageAndReturnSize (forceVerifyPropCRC).
    """
    if is_true(config, FORCED):
        return CrcDemand.OF_ALL
    return CrcDemand.WHERE_THERE if kept else CrcDemand.NOTHING


def as_its_broker_writes(config: StoreConfig, newer: Newer, *, index_tags: bool) -> StoreConfig:
    """The settings with how the store's broker writes records and index entries.

    A broker that demands a property CRC of each record gets them, whether it writes them or not. Longer topics are
    RocketMQ 5's by default; its key says otherwise, or says so of a store that shows no sign of it. Source:
    CommitLog#asyncPutMessage, MessageStoreConfig#autoMessageVersionOnTopicLen (5.x).
    """
    own = config.other.get(_LONG_TOPICS, "").strip().lower()
    return replace(
        config,
        index_tags=config.index_tags or index_tags,
        property_crcs=config.property_crcs or newer.has(PROPERTY_CRC) or newer.has(PROPERTY_CRC_FORCED),
        long_topics=config.long_topics or (own == "true" if own else bool(newer)),
    )


def is_true(config: StoreConfig, key: str) -> bool:
    """Whether a setting that only RocketMQ 5 has is on."""
    return config.other.get(key, "").strip().lower() == "true"


def property_crc_place(disk: Disk, config: StoreConfig, log: Sequence[str]) -> str | None:
    """Where records end with a CRC of their own: the front of the first and of the last segments is looked at."""
    if is_true(config, _APPENDED):
        return f"{_APPENDED}=true"
    for path in dict.fromkeys((*log[:1], *log[-2:])):
        with contextlib.suppress(StorageError):  # what can't be read is another's to say
            if _have_crc(_front(disk, path)):
                return f"commitlog/{os.path.basename(path)}"
    return None


def _front(disk: Disk, path: str) -> bytes:
    reader = disk.open_reader(path)
    try:
        return bytes(reader.read(0, min(_FRONT, reader.size())))
    finally:
        reader.close()


def _have_crc(data: bytes) -> bool:
    """Whether most of the first records end with a CRC of their own that is right.

    A single one may be a client's: its properties are any text. The CRC is of what the broker fills in, too, so no
    client can make it for a place and a time that it doesn't know (MessageExtEncoder, MessageDecoder#createCrc32, 5.x).
    """
    at = sealed = plain = 0
    while sealed + plain < _RECORDS:
        at = _record_at(data, at)
        if at < 0:
            break
        size = total_size_at(data, at)
        if is_sealed(data[at : at + size]):
            sealed += 1
        else:
            plain += 1
        at += size
    return sealed > plain


def _record_at(data: bytes, at: int) -> int:
    """The place at or after `at` where a record may begin that ends in `data`; −1: there is none."""
    while at + BLANK_SIZE <= len(data):
        size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
        if magic in MAGICS and BLANK_SIZE < size <= len(data) - at:
            return at
        places = (data.find(magic, at + POSITION_MAGIC + 1) for magic in MAGIC_BYTES)
        first = min((place for place in places if place >= 0), default=-1)
        if first < 0:
            return -1
        at = first - POSITION_MAGIC
    return -1
