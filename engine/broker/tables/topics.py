"""Topics of the broker: what there is, what is made by itself, and topics.json.

Sources: TopicConfigManager; BROKER.md 2.1, 2.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.broker.requests.answers import Answer
from engine.broker.tables.config_file import VersionedTable
from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format import names
from engine.format.topic_rules import FORBIDDEN, OFFSET_MOVED, SELF_TEST, TBW102
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Container, Iterable, Mapping

    from engine.broker.settings.broker_settings import BrokerSettings
    from engine.broker.tables.config_file import ConfigFile
    from engine.errors import RStoreError

PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
READ_WRITE = PERM_READ | PERM_WRITE
RETRY, DLQ = "%RETRY%", "%DLQ%"
UNIT, UNIT_SUB = 1, 2
"""Bits of a topic's sys_flag: of a unit, subscribed to from units. Source: TopicSysFlag."""
MULTI_TAG = "MULTI_TAG"
CREATED = "topicsCreatedBySends"
"""In topics.json, of ours alone: the topics that count for maxAutoCreatedTopics."""
FILTER_TYPES = ("SINGLE_TAG", MULTI_TAG)
_SYSTEM = "rmq_sys_"
QUEUES_MAX = 1 << 16
"""Of a topic. Apache has no limit; what looks at each queue of a topic would never end."""
FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic: numbers of queues, permissions (PERM_…), flags; `attributes`: of RocketMQ 5, by name."""

    name: str
    read_queues: int = 4
    write_queues: int = 4
    perm: int = READ_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As topics.json and clients have it."""
        own: dict[str, Any] = {"attributes": dict(self.attributes)} if self.attributes else {}
        return own | {
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }

    @classmethod
    def of_json(cls, name: str, entry: Mapping[str, Any]) -> TopicConfig:
        """From either. Raises ValueError, TypeError: an invalid number."""
        return cls(
            str(entry.get("topicName") or name),
            int(entry.get("readQueueNums", 4)),
            int(entry.get("writeQueueNums", 4)),
            int(entry.get("perm", READ_WRITE)),
            str(entry.get("topicFilterType", "SINGLE_TAG")),
            int(entry.get("topicSysFlag", 0)),
            bool(entry.get("order", False)),
            tuple((str(key), str(value)) for key, value in dict(entry.get("attributes") or {}).items()),
        )

    def __str__(self) -> str:
        return (
            f"TopicConfig [topicName={self.name}, readQueueNums={self.read_queues}, "
            f"writeQueueNums={self.write_queues}, perm={perm_text(self.perm)}, topicFilterType={self.filter_type}, "
            f"topicSysFlag={self.sys_flag}, order={str(self.order).lower()}]"
        )


class TopicTable(VersionedTable[TopicConfig]):
    """All topics. For the loop's thread alone.

    Args:
        settings: the broker's.
        file: topics.json.
        loop: beside which it is written.
        now_ms: the clock.

    Attributes:
        settings: what holds now.
        was_kept: topics.json was there at the start.
    """

    def __init__(
        self, settings: BrokerSettings, file: ConfigFile, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]
    ) -> None:
        super().__init__(file, loop, now_ms)
        self.settings = settings
        self.topics = self._table
        self.was_kept = False
        self._created: set[str] = set()
        queues = settings.default_topic_queue_nums
        own = [
            TopicConfig(SELF_TEST, 1, 1),
            TopicConfig("BenchmarkTest", 1024, 1024),
            TopicConfig(settings.cluster_name, 16, 16, READ_WRITE | PERM_INHERIT),
            TopicConfig(settings.broker_name, 1, 1, READ_WRITE | PERM_INHERIT),
            TopicConfig(OFFSET_MOVED, 1, 1),
            TopicConfig(names.SCHEDULE_TOPIC, 18, 18),
            TopicConfig(settings.cluster_name + "_REPLY_TOPIC", 1, 1),
        ]
        if settings.auto_create_topic:
            own.insert(1, TopicConfig(TBW102, queues, queues, READ_WRITE | PERM_INHERIT))
        self.system = frozenset(topic.name for topic in own) | FORBIDDEN | {"RMQ_SYS_TRACE_TOPIC"}
        self.topics.update((topic.name, topic) for topic in own)

    def load(self) -> None:
        """What topics.json says, over the predefined ones. Raises CannotRepair, StorageError."""
        content = self._file.load()
        version, table = self._parsed(content, "topicConfigTable", TopicConfig.of_json)
        self.version = version or self.version
        self.was_kept = bool(table)
        self.topics.update(table)
        created = content.get(CREATED)
        self._created = {name for name in created if name in table} if isinstance(created, list) else set()

    async def take(self, table: dict[str, Any]) -> None:
        """A master's topics instead of ours. Raises CannotRepair, StorageError."""
        await self._take(table, "topicConfigTable", TopicConfig.of_json)

    def find(self, name: str) -> TopicConfig | None:
        """The topic, None when there is none."""
        return self.topics.get(name)

    def is_system(self, name: str) -> bool:
        """Whether it is the broker's own. Source: TopicValidator#isSystemTopic."""
        return name in self.system or name.startswith(_SYSTEM)

    def put(self, topic: TopicConfig, done: Callable[[RStoreError | None], None]) -> None:
        """Make or change a topic; `done` is called when that is durable, or with why nothing has changed.

        Raises:
            InvalidArgument: numbers of queues that no topic can have.
        """
        if not (0 <= topic.read_queues <= QUEUES_MAX and 0 <= topic.write_queues <= QUEUES_MAX):
            raise InvalidArgument(
                f"invalid number of queues: {topic.read_queues} to read, {topic.write_queues} to write",
                hint=f"0 to {QUEUES_MAX}",
            )
        self._put(topic.name, topic, done)

    def delete(self, name: str, done: Callable[[RStoreError | None], None]) -> None:
        """Forget a topic, if there is one; `done` as of `put`."""

        def gone(failure: RStoreError | None) -> None:
            if failure is None:
                self._created.discard(name)
            done(failure)

        self._put(name, None, gone)

    def for_send(self, name: str, default_topic: str, default_queues: int, *, unit: bool = False) -> TopicConfig | None:
        """The topic to send to, made where that is allowed. Source: #createTopicInSendMessageMethod.

        Raises:
            NotYet: it is being made. What is acknowledged must be found after a crash, so its topic is durable first.
            Answer: as many as `maxAutoCreatedTopics` were made so. What there is already goes on.
        """
        topic = self.topics.get(name)
        if topic is not None:
            return topic
        kind = (UNIT_SUB if name.startswith(RETRY) else UNIT) if unit else 0
        model = self.topics.get(default_topic)
        if model is not None and default_topic == TBW102 and not self.settings.auto_create_topic:
            model = None
        if model is not None and model.perm & PERM_INHERIT:
            queues = max(0, min(default_queues, model.write_queues))
            made = replace(
                model,
                name=name,
                read_queues=queues,
                write_queues=queues,
                perm=model.perm & ~PERM_INHERIT,
                sys_flag=kind,
            )
            self._count(name)
            self._demand(name, made)
        return self.for_retry(name, 1, kind) if name.startswith(RETRY) else None

    def for_retry(self, name: str, queues: int = 1, sys_flag: int = 0) -> TopicConfig:
        """A group's topic of messages that come again, or that nobody could consume. Raises NotYet: it comes."""
        topic = self.topics.get(name)
        if topic is None:
            self._demand(name, TopicConfig(name, queues, queues, sys_flag=sys_flag))
        return topic

    def there_soon(self, name: str, queues: int = 1, sys_flag: int = 0) -> TopicConfig:
        """The same, where nothing is put into it yet: it is there at once, and in the file a moment later."""
        topic = self.topics.get(name)
        if topic is None:
            topic = TopicConfig(name, queues, queues, sys_flag=sys_flag)
            self._put_soon(name, topic)
        return topic

    def set_ordered(self, names: Container[str]) -> None:
        """These topics are ordered, and no others. Source: #updateOrderTopicConfig."""
        for topic in [topic for topic in self.topics.values() if topic.order != (topic.name in names)]:
            self._put_soon(topic.name, replace(topic, order=not topic.order))

    def _count(self, name: str) -> None:
        """A send makes a topic. Raises Answer: there are too many that sends have made."""
        created, most = self._created, self.settings.max_auto_created_topics
        if name in created:  # asked for again before it is there
            return
        if len(created) >= most:
            remark = f"topic[{name}] is not created: sends have created as many as maxAutoCreatedTopics, {most}"
            raise Answer(
                ResponseCode.TOPIC_NOT_EXIST, f"{remark}; create it with mqadmin updateTopic, or delete others"
            )
        created.add(name)

    def _not_kept(self, names: Iterable[str]) -> None:
        self._created.difference_update(names)

    def _as_json(self, table: Mapping[str, TopicConfig]) -> dict[str, Any]:
        """TopicConfigSerializeWrapper; topics.json."""
        return {"topicConfigTable": {name: topic.to_json() for name, topic in table.items()}}

    def _beside(self, table: Mapping[str, TopicConfig]) -> dict[str, Any]:
        """Apache's broker passes over what it does not know, and leaves it out when it writes the file."""
        created = sorted(name for name in list(self._created) if name in table)
        return {CREATED: created} if created else {}


def perm_text(perm: int) -> str:
    """RWX as Apache prints it. Source: PermName#perm2String."""
    return "".join(
        letter if perm & bit else "-" for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )
