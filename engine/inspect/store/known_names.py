"""Topics, queues and groups that a store knows: a name that it doesn't know is an error that says the nearest one.

The one rule of all commands: what is asked for by name is looked for first, and only who finds nothing asks whether the
name is known. So messages whose queues and topics.json are lost are found all the same, and those of a topic that
was deleted and that the log still holds.

Known is a topic that has queue files or an entry in topics.json, a queue that has files or that topics.json gives its
topic, a group that has an offset, an entry in subscriptionGroup.json, or a topic of its retries or dead letters.

Where RocketMQ 5 keeps topics and groups in RocksDB, nobody here knows which there are: then no name is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format import names
from engine.format.nearest import did_you_mean, visible
from engine.inspect.store.config_files import BACKUP, ConfigFileState, directory_of, read_text
from engine.inspect.store.config_shapes import (
    CONSUMERS,
    GROUP_TABLE,
    GROUPS,
    LMQ_CONSUMERS,
    LMQ_TABLE,
    OFFSET_TABLE,
    TOPIC_TABLE,
    TOPICS,
    as_int,
)
from engine.inspect.store.newer import ROCKSDB_CONFIG
from engine.inspect.store.survey import survey

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue

_SHOWN = 8
_QUEUES_MAX = 1 << 16
"""Queues of a topic that topics.json is believed."""


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names of one store, or of several.

    Attributes:
        files: queue ids that have files, by topic.
        configured: by topic, how many queues topics.json gives it.
        groups: consumer groups.
        roots: the stores' directories.
        hidden: where topics and groups are that are not read, like config/topics/; empty where all of them are.
    """

    files: Mapping[str, frozenset[int]]
    configured: Mapping[str, int]
    groups: frozenset[str]
    roots: tuple[str, ...]
    hidden: str = ""

    @classmethod
    def of(cls, disk: Disk, files: StoreFiles) -> KnownNames:
        """Those of a store; a file of config/ that can't be read names nothing. Raises StorageError."""
        queues: dict[str, set[int]] = {}
        for queue in files.queues:
            queues.setdefault(queue.queue.topic, set()).add(queue.queue.queue_id)
        topics = _table(disk, files.root, TOPICS, TOPIC_TABLE)
        offsets = (
            key
            for name, table in ((CONSUMERS, OFFSET_TABLE), (LMQ_CONSUMERS, OFFSET_TABLE), (LMQ_CONSUMERS, LMQ_TABLE))
            for key in _table(disk, files.root, name, table)
        )
        groups = {key.rpartition("@")[2] for key in offsets} | set(_table(disk, files.root, GROUPS, GROUP_TABLE))
        for topic in (*queues, *topics):
            for prefix in (names.RETRY_PREFIX, names.DLQ_PREFIX):
                if topic.startswith(prefix):
                    groups.add(topic[len(prefix) :])
        return cls(
            {topic: frozenset(ids) for topic, ids in queues.items()},
            {topic: _queues_of(value) for topic, value in topics.items()},
            frozenset(groups - {""}),
            (files.root,),
            files.newer.where(ROCKSDB_CONFIG) if files.newer.no_config_files else "",
        )

    @classmethod
    def of_store(cls, disk: Disk, config: StoreConfig) -> KnownNames:
        """Those of the store that `config` names. Raises NotAStore, CannotRepair, StorageError."""
        return cls.of(disk, survey(disk, config))

    @classmethod
    def together(cls, several: Iterable[KnownNames]) -> KnownNames:
        """What any of some stores knows."""
        files: dict[str, frozenset[int]] = {}
        configured: dict[str, int] = {}
        groups: set[str] = set()
        roots: list[str] = []
        hidden = ""
        for one in several:
            hidden = hidden or one.hidden
            for topic, ids in one.files.items():
                files[topic] = files.get(topic, frozenset()) | ids
            for topic, count in one.configured.items():
                configured[topic] = max(count, configured.get(topic, 0))
            groups |= one.groups
            roots += one.roots
        return cls(files, configured, frozenset(groups), tuple(roots), hidden)

    @property
    def topics(self) -> frozenset[str]:
        """Every topic."""
        return frozenset(self.files) | frozenset(self.configured)

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether there is such a queue, with files or still without."""
        return queue_id in self.files.get(topic, ()) or 0 <= queue_id < self.configured.get(topic, 0)

    def and_also(self, queues: Iterable[TopicQueue]) -> KnownNames:
        """Self, and queues that are known from elsewhere, like the records that a repair saved."""
        files = dict(self.files)
        for topic, queue_id in queues:
            files[topic] = files.get(topic, frozenset()) | {queue_id}
        return replace(self, files=files)

    def demand_topic(self, topic: str) -> None:
        """Raises InvalidArgument: no such topic; it names the nearest ones."""
        if topic not in self.topics and not self.hidden:
            raise self._unknown("topic", topic, self.topics)

    def demand_group(self, group: str) -> None:
        """Raises InvalidArgument: no such group; it names the nearest ones."""
        if group not in self.groups and not self.hidden:
            raise self._unknown("group", group, self.groups)

    def demand_queue(self, topic: str, queue_id: int) -> None:
        """Raises InvalidArgument: no such topic, or it has no such queue."""
        self.demand_topic(topic)
        if not self.has_queue(topic, queue_id) and not self.hidden:
            count = self.configured.get(topic, 0)
            ids = sorted(self.files.get(topic, frozenset()) | frozenset(range(count)))
            name = visible(topic)
            what = f"{name} has the queues {_spans(ids)}" if ids else f"{name} has no queues yet"
            raise InvalidArgument(f"no queue {name}/{queue_id}", path=self._place, hint=what)

    def demand_queue_id(self, queue_id: int) -> None:
        """Raises InvalidArgument: no topic has such a queue."""
        if not self.hidden and not any(self.has_queue(topic, queue_id) for topic in self.topics):
            raise InvalidArgument(f"no topic has a queue {queue_id}", path=self._place)

    def meant_topic(self, topic: str) -> str:
        """What to say of a topic that is about to be made: which one may be meant; empty where none is near."""
        return "" if topic in self.topics else did_you_mean(topic, self.topics)

    def near_group(self, group: str) -> str:
        """What to say of a group that is not known: the nearest ones, or which there are."""
        return _near(group, self.groups, "groups")

    @property
    def _place(self) -> str | None:
        return self.roots[0] if len(self.roots) == 1 else None

    def _unknown(self, what: str, name: str, known: frozenset[str]) -> InvalidArgument:
        where = "" if len(self.roots) == 1 else f" in any of {len(self.roots)} stores"
        return InvalidArgument(
            f"no {what} {visible(name)}{where}", path=self._place, hint=_near(name, known, f"{what}s")
        )


def _near(name: str, known: frozenset[str], what: str) -> str:
    if not known:
        return f"there are no {what}"
    close = did_you_mean(name, known)
    if close:
        return close
    some = [visible(one) for one in sorted(known)[:_SHOWN]]
    return f"{what}: {', '.join(some)}" + (f" and {len(known) - len(some)} more" if len(known) > len(some) else "")


def _spans(ids: list[int]) -> str:
    """0 to 3, 7."""
    spans: list[tuple[int, int]] = []
    for one in ids:
        if spans and spans[-1][1] == one - 1:
            spans[-1] = (spans[-1][0], one)
        else:
            spans.append((one, one))
    shown = [f"{a}" if a == b else f"{a} to {b}" for a, b in spans[:_SHOWN]]
    return ", ".join(shown) + (", …" if len(spans) > _SHOWN else "")


def _table(disk: Disk, root: str, name: str, key: str) -> dict[str, Any]:
    """A table of a file of config/, or of its .bak where the file can't be read."""
    for one in (name, name + BACKUP):
        file = read_text(disk, directory_of(root), one)
        if file.state is ConfigFileState.SOUND:
            table = file.value.get(key) if isinstance(file.value, dict) else None
            return table if isinstance(table, dict) else {}
    return {}


def _queues_of(value: object) -> int:
    """How many queues an entry of topics.json gives its topic."""
    if not isinstance(value, dict):
        return 0
    counts = (as_int(value.get(key)) or 0 for key in ("readQueueNums", "writeQueueNums"))
    return min(max(counts), _QUEUES_MAX)
