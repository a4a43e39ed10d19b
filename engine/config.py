"""Settings of a store: Apache's own names and defaults, read from its own properties file (broker.conf).

A `StoreConfig` is frozen; each field has Apache's key (`apache_key`). Keys that are not ours (a broker has hundreds)
are kept as they are in `other`, so that nothing in somebody's file is lost or refused.

A broker's file is read as a broker reads it (`load_broker`): a value that it can't read is left out, no comment ends a
value, no blank at its end is lost (engine.broker_conf says what it makes of each line). Our own file is read strictly.

Source of names and defaults: MessageStoreConfig and BrokerConfig, tag rocketmq-all-4.9.8.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import shlex
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, get_type_hints

from engine.broker_conf import paths, values
from engine.broker_conf.disk_levels import CLEAN_FORCIBLY, WARNING_LEVEL
from engine.broker_conf.in_force import queue_file_size
from engine.broker_conf.properties import TRIMMED, read_strictly
from engine.dataclass import dataclass
from engine.errors import DataIsAbsent, InvalidArgument, NotAFile, from_os_error
from engine.format.delay import DEFAULT_LEVELS, DelayLevels
from engine.format.queue_unit import UNIT_SIZE

MIB = 1 << 20
LARGEST = 4 * MIB
"""Bytes of a file of settings, at most: of `LONGEST` characters, each in UTF-8."""


class FlushDiskType(enum.Enum):
    """When a put is on disk: before it is answered, or some time later."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class BrokerRole(enum.Enum):
    """Whether this store takes puts, and whether they wait for a copy."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


NOT_SETTINGS = frozenset(
    {"other", "given", "typed", "origin", "follow_links", "not_sizes", "index_tags", "property_crcs", "long_topics"}
)
"""Fields of `StoreConfig` that are no setting of Apache's."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Settings of one store. Sizes in bytes, times in ms unless Apache's name says otherwise.

    A path of None is the default place below the root. `given` names the fields that somebody set: a size that nobody
    gave is inferred from the files of an existing store (engine.inspect.store.survey). The two `disk_space_…` are parts
    of 1, which a broker takes as properties of its JVM (-Drocketmq.broker.diskSpace…Ratio) and we from its file.
    `origin`: the file that said it, of fields that a file said.
    `follow_links`: changes are made through links below the store's directories, too (engine.files.beneath).
    `not_sizes`: keys in the store's own file that are no sizes, and have no effect.
    `index_tags`: the store's broker indexes tags, too (engine.inspect.store.tag_keys); a survey says it.
    `property_crcs`, `long_topics`: it puts a property CRC into each record, and takes retry topics of more than 127
    bytes, in records of their own kind (RocketMQ 5); a survey says both.
    `typed`: the arguments that named this store on the command line (`--store DIR`, `-c FILE`), so that a command that
    is named next can be copied and run.
    """

    store_path_root_dir: Path = field(default_factory=lambda: Path.home() / "store")
    store_path_commit_log: str | None = None
    read_only_commit_log_store_paths: str | None = None
    mapped_file_size_commit_log: int = 1024 * MIB
    mapped_file_size_consume_queue: int = 300_000 * UNIT_SIZE
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = 48 * MIB
    bit_map_length_consume_queue_ext: int = 64
    flush_interval_commit_log: int = 500
    commit_interval_commit_log: int = 200
    flush_commit_log_timed: bool = True
    flush_interval_consume_queue: int = 1000
    clean_resource_interval: int = 10_000
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    destroy_maped_file_interval_forcibly: int = 120_000
    redelete_hanged_file_interval: int = 120_000
    delete_when: str = "04"
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: float = CLEAN_FORCIBLY / 100
    disk_space_warning_level_ratio: float = WARNING_LEVEL / 100
    file_reserved_time: int = 72
    max_message_size: int = 4 * MIB
    check_crc_on_recover: bool = True
    flush_commit_log_least_pages: int = 4
    commit_commit_log_least_pages: int = 4
    flush_least_pages_when_warm_maped_file: int = 4096
    flush_consume_queue_least_pages: int = 2
    flush_commit_log_thorough_interval: int = 10_000
    commit_commit_log_thorough_interval: int = 200
    flush_consume_queue_thorough_interval: int = 60_000
    max_transfer_bytes_on_message_in_memory: int = 256 * 1024
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 * 1024
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    message_index_enable: bool = True
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    max_msgs_num_batch: int = 64
    message_index_safe: bool = False
    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    sync_flush_timeout: int = 5000
    slave_timeout: int = 3000
    message_delay_level: str = DEFAULT_LEVELS
    clean_file_forcibly_enable: bool = True
    warm_maped_file_enable: bool = False
    offset_check_in_slave: bool = False
    os_page_cache_busy_time_out_mills: int = 1000
    default_query_max_num: int = 32
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    fast_fail_if_no_buffer_in_store_pool: bool = False
    enable_d_leger_commit_log: bool = False
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: int = 20_000
    other: Mapping[str, str] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    typed: tuple[str, ...] = ()
    origin: Mapping[str, Path] = field(default_factory=dict, compare=False)
    follow_links: bool = False
    not_sizes: tuple[str, ...] = ()
    index_tags: bool = False
    property_crcs: bool = False
    long_topics: bool = False

    @property
    def commit_log_paths(self) -> tuple[Path, ...]:
        """Directories of the commit log, in the order given; more than one with multi-path."""
        directories = paths.log_directories(self.store_path_commit_log or "")
        return _paths(directories) or (self.store_path_root_dir / "commitlog",)

    @property
    def read_only_commit_log_paths(self) -> tuple[Path, ...]:
        """Directories whose segments are read, but where none is made."""
        return _paths(paths.read_only_directories(self.read_only_commit_log_store_paths or ""))

    @property
    def log_directories(self) -> tuple[str, ...]:
        """All directories that segments are read from: those of `commit_log_paths`, then the read-only ones."""
        return tuple(map(str, (*self.commit_log_paths, *self.read_only_commit_log_paths)))

    @property
    def transient_store_pool_active(self) -> bool:
        """Whether puts go through the write buffers: only on a master with asynchronous flush.

        Source: MessageStoreConfig#isTransientStorePoolEnable.
        """
        return (
            self.transient_store_pool_enable
            and self.flush_disk_type is FlushDiskType.ASYNC_FLUSH
            and self.broker_role is not BrokerRole.SLAVE
        )

    def with_changes(self, **changes: Any) -> StoreConfig:
        """A copy with some fields set.

        Raises:
            InvalidArgument: a size that no store can have.
        """
        return dataclasses.replace(self, **changes, given=self.given | changes.keys()).checked()

    def as_given(self, given: frozenset[str]) -> StoreConfig:
        """A copy that says that somebody gave these fields, and no others."""
        return dataclasses.replace(self, given=given)

    def checked(self) -> StoreConfig:
        """Self, when every size makes sense.

        Raises:
            InvalidArgument: naming the setting by Apache's key.
        """

        def demand(ok: bool, name: str, why: str) -> None:
            if not ok:
                raise InvalidArgument(f"{apache_key(name)} = {getattr(self, name)}: {why}")

        demand(4096 <= self.mapped_file_size_commit_log < 1 << 31, "mapped_file_size_commit_log", "4 KiB to 2 GiB - 1")
        demand(
            0 < self.mapped_file_size_consume_queue < 1 << 31 and self.mapped_file_size_consume_queue % UNIT_SIZE == 0,
            "mapped_file_size_consume_queue",
            f"a positive multiple of {UNIT_SIZE}, the size of a unit",
        )
        demand(
            64 <= self.mapped_file_size_consume_queue_ext < 1 << 31, "mapped_file_size_consume_queue_ext", "too small"
        )
        demand(0 < self.max_hash_slot_num < 1 << 31, "max_hash_slot_num", "at least 1")
        demand(2 <= self.max_index_num < 1 << 31, "max_index_num", "at least 2, as entry 0 is never used")
        demand(0 < self.max_message_size < 1 << 31, "max_message_size", "at least 1")
        return self


STORE_CONF = "rstore.conf"
"""Where `init` keeps a store's sizes, in the store itself."""
_SPECIAL_KEYS = {
    "check_crc_on_recover": "checkCRCOnRecover",
    "disk_space_clean_forcibly_ratio": "rocketmq.broker.diskSpaceCleanForciblyRatio",
    "disk_space_warning_level_ratio": "rocketmq.broker.diskSpaceWarningLevelRatio",
}
_JVM = frozenset(key for key in _SPECIAL_KEYS.values() if key.startswith("rocketmq."))
"""Keys that a broker takes as properties of its JVM."""


def apache_key(name: str) -> str:
    """Apache's name of a field: mapped_file_size_commit_log → mappedFileSizeCommitLog."""
    if name in _SPECIAL_KEYS:
        return _SPECIAL_KEYS[name]
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _paths(directories: list[str]) -> tuple[Path, ...]:
    """Without those whose name is empty: a broker finds no segment there (java.io.File#listFiles)."""
    return tuple(map(Path, filter(None, directories)))


def _known() -> dict[str, str]:
    """Our fields, by Apache's keys."""
    return {apache_key(f.name): f.name for f in dataclasses.fields(StoreConfig) if f.name not in NOT_SETTINGS}


def _value(key: str, text: str, hint: Any) -> Any:
    """Raises InvalidArgument: a broker can't read it."""
    if key in _JVM:
        return _ratio(key, text)
    from engine.broker_conf.all_keys import all_keys  # four tables, for who has a file to read

    setting = values.demand(key, all_keys()[key][-1].kind, text)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(setting)
    return Path(str(setting)) if hint is Path else setting


def _ratio(key: str, text: str) -> float:
    """Source: CleanCommitLogService, which does not limit them; a JVM does not start with what is no number."""
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not ratio >= 0:
        raise InvalidArgument(f"{key} = {values.shown(text)} is not a fraction of 1, like 0.90")
    return ratio


def _on_top(
    base: StoreConfig | None, entries: Mapping[str, str], *, strict: bool, path: Path | None = None
) -> StoreConfig:
    """`path`: of the file. Raises InvalidArgument."""
    hints, known = get_type_hints(StoreConfig), _known()
    changes: dict[str, Any] = {}
    for key in entries.keys() & known.keys():
        try:
            changes[known[key]] = _value(
                key, entries[key].strip() if strict or key in _JVM else entries[key], hints[known[key]]
            )
        except InvalidArgument:
            if strict:
                raise
    if "mapped_file_size_consume_queue" in changes and not strict:
        changes["mapped_file_size_consume_queue"] = queue_file_size(changes["mapped_file_size_consume_queue"])
    other = {key: value for key, value in entries.items() if key not in known}
    base = base or StoreConfig()
    origin = {**base.origin, **({} if path is None else dict.fromkeys(changes, path))}
    return dataclasses.replace(base, other={**base.other, **other}, origin=origin).with_changes(**changes)


def delay_levels(config: StoreConfig) -> DelayLevels:
    """The levels of messageDelayLevel, for who can't do without them; who only reads takes `DelayLevels.or_defaults`.

    Raises:
        InvalidArgument: it is not a list of times: with its file, its value and the next command.
    """
    text = config.message_delay_level
    try:
        return DelayLevels.parse(text)
    except InvalidArgument as error:
        path, what = config.origin.get("message_delay_level"), error.message.removeprefix("messageDelayLevel ")
        next_step = "" if path is None else f"; then: rstore doctor --conf {shlex.quote(os.fspath(path))}"
        raise InvalidArgument(
            f"messageDelayLevel = {values.shown(text)} {what}", path=path, hint=f"write {error.hint}{next_step}"
        ) from None


def parse(
    text: str, base: StoreConfig | None = None, path: Path | None = None, *, only: frozenset[str] | None = None
) -> StoreConfig:
    """Settings from the text of a Java properties file, on top of `base` (default: Apache's defaults); strictly.

    `path`: of the file, to be reported. `only`: keys that count; the others are in `not_sizes` then.

    Raises:
        InvalidArgument: a value of the wrong kind, or a size that no store can have.
    """
    entries = read_strictly(text)
    if only is None:
        return _on_top(base, entries, strict=True, path=path)
    counted = {key: value for key, value in entries.items() if key in only}
    config = _on_top(base, counted, strict=True, path=path)
    return dataclasses.replace(config, not_sizes=tuple(sorted(entries.keys() - only)))


def load(path: Path, base: StoreConfig | None = None, *, only: frozenset[str] | None = None) -> StoreConfig:
    """`parse` of a file, in UTF-8: one of our own.

    Raises:
        StorageError: it can't be read. InvalidArgument: as `parse`.
    """
    try:
        text = _bytes_of(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument("the configuration is not UTF-8 text", path=path, offset=error.start) from None
    try:
        return parse(text, base, path, only=only)
    except InvalidArgument as error:
        raise InvalidArgument(error.message, path=path, hint=error.hint) from None


def _bytes_of(path: Path) -> bytes:
    """A file of settings whole. Raises StorageError, and InvalidArgument for one of more than `LARGEST` bytes."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise from_os_error(error, "reading the configuration", path) from None
    if len(data) > LARGEST:
        what = f"the configuration has {max(size, len(data)):,} bytes, more than {LARGEST:,}"
        raise InvalidArgument(what, path=path, hint=TRIMMED)
    return data


def _demand_paths(entries: Mapping[str, str]) -> None:
    """Raise InvalidArgument for an empty path, to which a broker appends / and a name, and for an invalid one.

    Source: StorePathConfigHelper; a path of Java with a NUL character is invalid.
    """
    for key, first in (("storePathRootDir", "/consumequeue"), ("storePathCommitLog", "/" + "0" * 20)):
        if entries.get(key) == "":
            raise InvalidArgument(
                f"{key} is empty: a broker makes its files in / then ({first})",
                hint="give it a directory, or remove the line",
            )
        if "\0" in entries.get(key, ""):
            raise InvalidArgument(
                f"{key} contains a NUL character, which no path can", hint="write the path without it"
            )
    log = entries.get("storePathCommitLog")
    if log is not None and not log.replace(",", "").strip():
        raise InvalidArgument(
            f"storePathCommitLog = {log!r} names no directory", hint="give it a directory, or remove the line"
        )


def load_broker(path: Path, base: StoreConfig | None = None) -> StoreConfig:
    """Settings from a broker's file (broker.conf), on top of `base`: what a broker started with it has in force.

    Raises:
        StorageError: it can't be read. InvalidArgument: no broker starts with it, or a size that no store can have.
    """
    from engine.broker_conf.properties import read_properties

    data = _bytes_of(path)
    try:
        entries = read_properties(data).values
        _demand_paths(entries)
        return _on_top(base, entries, strict=False, path=path)
    except InvalidArgument as error:
        hint = error.hint or f"what a broker makes of the file: rstore doctor --conf {shlex.quote(os.fspath(path))}"
        raise InvalidArgument(error.message, path=path, hint=hint) from None


def of_store(root: Path | None = None, file: Path | None = None) -> StoreConfig:
    """The settings of the store at `root`: its own rstore.conf, over it a broker's properties file.

    Without a `root`: the one that the file names, or Apache's default. Log directories that the file has below its own
    root move along, as in a copied store.

    Raises:
        InvalidArgument, StorageError: a file that can't be read, or a value that makes no sense.
    """
    on_top = StoreConfig() if file is None else load_broker(file)
    root = root or on_top.store_path_root_dir
    base = sizes_of_store(root / STORE_CONF)
    config = base if file is None else load_broker(file, base)
    changes: dict[str, object] = {}
    for name, directories in (
        ("store_path_commit_log", config.commit_log_paths),
        ("read_only_commit_log_store_paths", config.read_only_commit_log_paths),
    ):
        setting = getattr(config, name)
        if setting:
            parts = (str(_moved(part, on_top.store_path_root_dir, root)) for part in directories)
            changes[name] = ",".join(parts) + ("," if "," in setting else "")  # which keeps a blank before it
    return config.with_changes(store_path_root_dir=root, **changes)


def sizes_of_store(path: Path) -> StoreConfig:
    """The sizes in a store's own file; the defaults without one. Its other keys have no effect (`not_sizes`).

    Whoever can write into a store can write this file: it says nothing of where the store's files are, or how long they
    are kept. Raises NotAFile, DataIsAbsent, InvalidArgument, StorageError.
    """
    if not os.path.lexists(path):
        return StoreConfig()
    if not path.is_file():
        if not path.exists():
            what, hint = f"a link to {path.readlink()}, which does not exist", "mount the disk that it leads to"
            raise DataIsAbsent(f"the store's own settings are {what}", path=path, hint=hint)
        hint = "move it out of the store; its sizes are inferred from its files then"
        raise NotAFile("the store's own settings are not a file", path=path, hint=hint)
    return load(path, only=OWN_KEYS)


def _moved(path: Path, old: Path, new: Path) -> Path:
    return new / path.relative_to(old) if path.is_relative_to(old) else path


STORE_SIZES = (
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "max_hash_slot_num",
    "max_index_num",
)
"""The settings (fields of StoreConfig) that a store keeps for life."""
OWN_KEYS = frozenset(map(apache_key, (*STORE_SIZES, "mapped_file_size_consume_queue_ext", "max_message_size")))
"""The keys of `STORE_CONF` that count: sizes, and no more."""
