"""PULL_MESSAGE: checks, the get, what its status means to a client, and pulls that wait for messages.

A pull that finds nothing and may wait is held: it is tried again when a message that it could want has arrived, every
TICK_MS all the same, and answered "not found" when its time is over. Pulls that are filtered by SQL92 have turns of
their own: one takes some ms. Source: PullMessageProcessor, PullRequestHoldService (4.9.8); BROKER.md 2.6.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar

from engine.broker.requests import fields
from engine.broker.requests.answers import Answer, BadField
from engine.broker.tables.consumer_filters import TAG_KINDS
from engine.broker.tables.topics import FAQ, PERM_READ
from engine.broker.turns import TURN_S
from engine.dataclass import dataclass
from engine.errors import RStoreError
from engine.log.filters import ALL, TagFilter
from engine.log.results import GetMessageStatus, GetResult
from engine.log.sql import BadExpression
from engine.wire.codes import PULL_COMMIT, PULL_SUBSCRIPTION, PULL_SUSPEND, ResponseCode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Sequence

    from engine.broker.ha.role import Role
    from engine.broker.net.connection import Connection
    from engine.broker.put.events import EventWriter
    from engine.broker.requests.dispatched import AfterDispatch
    from engine.broker.requests.later import Later
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.consumer_filters import ConsumerFilters, SqlFilters
    from engine.broker.tables.groups import GroupTable
    from engine.broker.tables.members import Members
    from engine.broker.tables.offsets import ConsumerOffsets
    from engine.broker.tables.topics import TopicTable
    from engine.broker.watch.stats import Stats
    from engine.log.sql import SqlFilter
    from engine.services.arrivals import Arrival
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

TICK_MS = 5000
_Key = TypeVar("_Key")
NO_SQL = "The broker does not support consumer to filter message by {}"
_NO_FILTER = "The broker's consumer filter data is not exist!Your expression may be wrong!"
SQL = "SQL92"
_CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_REMARKS = {status: status.value for status in GetMessageStatus}
_REMARKS[GetMessageStatus.NO_MATCHED_LOGIC_QUEUE] = GetMessageStatus.NO_MESSAGE_IN_QUEUE.value
"""As the broker says it: to Apache's, asking for a queue makes it."""


class BadTags(Exception):
    """An expression of tags without any."""


def tag_filter(expression: str) -> TagFilter:
    """The tags of an expression such as `a || b`, "*" and nothing are all. Source: FilterAPI#buildSubscriptionData.

    Raises:
        BadTags: bars alone.
    """
    if expression in ("", ALL):
        return TagFilter([ALL], exact=False)
    if not any(expression.split("||")):
        raise BadTags
    # A "*" among others is a tag like them, and blanks alone are no tag: so says Apache's broker.
    return TagFilter([tag.strip() for tag in expression.split("||") if tag.strip()], exact=False, star=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Pull:
    """A pull that has passed its checks. `deadline`: the loop's time, s."""

    connection: Connection
    request: RemotingCommand
    group: str
    topic: str
    queue_id: int
    offset: int
    most: int
    tags: TagFilter | SqlFilter
    deadline: float


class PullHandler:
    """Answers pulls, and holds them.

    Attributes:
        not_held: pulls that were answered at once, as too many wait already.
    """

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        members: Members,
        consumer_filters: ConsumerFilters,
        stats: Stats,
        settings: CurrentSettings,
        role: Role,
        loop: asyncio.AbstractEventLoop,
        events: EventWriter,
        after_dispatch: AfterDispatch,
        sql_filters: SqlFilters,
        later: Later,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._members = members
        self._consumer_filters = consumer_filters
        self._stats = stats
        self._settings = settings
        self._role = role
        self._loop = loop
        self._events = events
        self._after_dispatch = after_dispatch
        self._sql_filters = sql_filters
        self._later = later
        self._turns = later.turns
        self._held: defaultdict[tuple[str, int], set[_Pull]] = defaultdict(set)
        self._count = 0
        self.not_held = 0
        self._by_connection: defaultdict[Connection, set[_Pull]] = defaultdict(set)

    @property
    def _most(self) -> int:
        """Messages that one pull gives: who asks for more has no more looked at."""
        config = self._store.config
        return max(config.max_transfer_count_on_message_in_memory, config.max_transfer_count_on_message_in_disk)

    @property
    def held(self) -> int:
        """Pulls that wait."""
        return self._count

    def handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """PULL_MESSAGE, LITE_PULL_MESSAGE."""
        try:
            pull, flags = self._judge(connection, request)
        except BadField:
            raise
        except Answer as answer:
            return request.answer(answer.code, answer.remark, answer.ext or {})
        commit = fields.long(request.fields, "commitOffset", 0)
        if flags & PULL_COMMIT and not self._role.is_slave:
            self._offsets.commit(pull.group, pull.topic, pull.queue_id, commit)
        if self._comes_early(pull, flags):
            self._after_dispatch.answer(connection, request, lambda: self._begin(pull, flags))
            return None
        return self._begin(pull, flags)

    def _comes_early(self, pull: _Pull, flags: int) -> bool:
        """Whether what a pull asks for is in the log, and not in its queue yet; at the very end one that waits anyway
        is held, and gets it as soon.
        """
        left = pull.offset - self._store.max_offset(pull.topic, pull.queue_id)
        early = left > 0 or (left == 0 and not flags & PULL_SUSPEND)
        return early and self._after_dispatch.needed_for(pull.topic, pull.queue_id)

    def _begin(self, pull: _Pull, flags: int) -> RemotingCommand | None:
        if pull.tags.terms:
            self._later.answer(pull.connection, pull.request, self._give_in_turn(pull, flags))
            return None
        return self._give(pull, flags)

    async def _give_in_turn(self, pull: _Pull, flags: int) -> RemotingCommand | None:
        began = await self._turns.begin()
        answer = self._give(pull, flags) if pull.connection.is_open else None
        self._turns.note(pull.request.code, began)
        return answer

    def _give(self, pull: _Pull, flags: int) -> RemotingCommand | None:
        """Answer a pull, or hold it."""
        messages = self._get(pull)
        nothing = self._code(pull, messages) == ResponseCode.PULL_NOT_FOUND
        if nothing and flags & PULL_SUSPEND:
            if self._count < self._settings.now.held_pulls:
                pull = self._hold(pull)
                if self._has_more(pull):  # it came before anybody was told that somebody waits
                    self._try(pull)
                return None
            self.not_held += 1
        return self._answer(pull, messages)

    # --- held pulls -------------------------------------------------------------------------------------------------

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Messages can be pulled now; in the loop's thread."""
        come_to: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for one in arrivals:
            key = (one.topic, one.queue_id)
            if key in self._held:
                come_to.setdefault(key, []).append((one.next_offset, one.tags_code))
        if come_to:
            waiting = [pull for key in come_to for pull in self._held.get(key, ())]
            self._try_each(iter(waiting), lambda pull: _wants(pull, come_to[pull.topic, pull.queue_id]))

    def tick(self) -> None:
        """Try all that wait again, and answer those whose time is over."""
        now = self._loop.time()
        every = [pull for waiting in self._held.values() for pull in waiting]
        self._try_each(iter(every), lambda pull: now >= pull.deadline or self._has_more(pull))

    def lost(self, connection: Connection) -> None:
        """Nobody waits any more."""
        self._drop_each(iter(list(self._by_connection.get(connection, ()))))

    def close(self) -> None:
        """Answer all that wait: the broker stops. What a filter would take isn't looked for any more."""
        for waiting in list(self._held.values()):
            for pull in list(waiting):
                if pull.tags.terms:
                    self._drop(pull)
                    pull.connection.answer(pull.request, self._answer(pull, self._nothing(pull)))
                else:
                    self._try(pull, over=True)

    def _nothing(self, pull: _Pull) -> GetResult:
        low = self._store.min_offset(pull.topic, pull.queue_id)
        return GetResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, pull.offset, low, pull.offset)

    def _try_each(self, pulls: Iterator[_Pull], wanted: Callable[[_Pull], bool]) -> None:
        """Try those that are to be tried, in turns: other requests have theirs between thousands of pulls."""
        clock = self._turns.clock
        began = clock()
        for pull in pulls:
            if self._is_held(pull) and wanted(pull):
                self._try(pull, over=self._loop.time() >= pull.deadline)
            if clock() - began >= TURN_S:
                self._turns.note("held pulls", began)
                self._turns.next(lambda: self._try_each(pulls, wanted))
                return

    def _drop_each(self, pulls: Iterator[_Pull]) -> None:
        clock = self._turns.clock
        began = clock()
        for pull in pulls:
            if self._is_held(pull):
                self._drop(pull)
            if clock() - began >= TURN_S:
                self._turns.next(lambda: self._drop_each(pulls))
                return

    def _is_held(self, pull: _Pull) -> bool:
        return pull in self._by_connection.get(pull.connection, ())

    def _try(self, pull: _Pull, *, over: bool = False) -> None:
        messages = self._get(pull)
        if over or self._code(pull, messages) != ResponseCode.PULL_NOT_FOUND:
            self._drop(pull)
            pull.connection.answer(pull.request, self._answer(pull, messages))

    def _has_more(self, pull: _Pull) -> bool:
        return self._store.max_offset(pull.topic, pull.queue_id) > pull.offset

    def _hold(self, pull: _Pull) -> _Pull:
        """It waits from now on, with no more of its request than an answer needs: that may be a frame of 16 MiB."""
        pull = replace(pull, request=pull.request._replace(ext=None, body=b"", remark=None))
        self._held[pull.topic, pull.queue_id].add(pull)
        self._by_connection[pull.connection].add(pull)
        self._count += 1
        if self._count == 1:
            self._store.listened()
        return pull

    def _drop(self, pull: _Pull) -> None:
        _discard(self._held, (pull.topic, pull.queue_id), pull)
        _discard(self._by_connection, pull.connection, pull)
        self._count -= 1

    # --- one pull ---------------------------------------------------------------------------------------------------

    def _judge(self, connection: Connection, request: RemotingCommand) -> tuple[_Pull, int]:
        ext = request.fields
        group_name, name = fields.text(ext, "consumerGroup"), fields.text(ext, "topic")
        if not self._settings.now.permission & PERM_READ:
            raise Answer(
                ResponseCode.NO_PERMISSION, f"the broker[{self._settings.now.broker_ip1}] pulling message is forbidden"
            )
        group = self._groups.find(group_name)
        if group is None:
            raise Answer(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group_name}] does not exist, {FAQ}"
            )
        if not group.consume_enable:
            raise Answer(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}")
        topic = self._topics.find(name)
        if topic is None:
            raise Answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ}")
        if not topic.perm & PERM_READ:
            raise Answer(ResponseCode.NO_PERMISSION, f"the topic[{name}] pulling message is forbidden")
        queue_id = fields.number(ext, "queueId")
        if not 0 <= queue_id < topic.read_queues:
            raise Answer(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{name}] topicConfig.readQueueNums:[{topic.read_queues}] "
                f"consumer:[/{connection.address}]",
            )
        flags = fields.number(ext, "sysFlag")
        version = fields.long(ext, "subVersion", 0)
        wait_ms = fields.long(ext, "suspendTimeoutMillis", 0)
        if not self._settings.now.long_polling:
            wait_ms = self._settings.now.short_polling_ms
        most = fields.number(ext, "maxMsgNums")
        if most < 0:
            raise BadField(f"maxMsgNums = {most}")
        tags = self._tags(request, group_name, name, flags, version)
        pull = _Pull(
            connection,
            request,
            group_name,
            name,
            queue_id,
            fields.long(ext, "queueOffset"),
            max(1, min(most, self._most)),
            tags,
            self._loop.time() + wait_ms / 1000,
        )
        return pull, flags

    def _tags(
        self, request: RemotingCommand, group_name: str, topic: str, flags: int, version: int
    ) -> TagFilter | SqlFilter:
        ext = request.fields
        if flags & PULL_SUBSCRIPTION:
            try:
                return self.filter_of(ext.get("expressionType"), ext.get("subscription", ""))
            except (BadExpression, BadTags):
                remark = "parse the consumer's subscription failed"
                raise Answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
        group = self._members.consumers.get(group_name)
        if group is None:
            raise Answer(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
        config = self._groups.find(group_name)
        if config is not None and not config.consume_broadcast_enable and group.message_model == "BROADCASTING":
            raise Answer(
                ResponseCode.NO_PERMISSION, f"the consumer group[{group_name}] can not consume by broadcast way"
            )
        wanted = group.subscriptions.get(topic)
        if wanted is None:
            raise Answer(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
        if wanted.version < version:
            raise Answer(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if wanted.kind not in TAG_KINDS:
            self._demand_filter(group_name, topic, version)
        try:
            return self.filter_of(wanted.kind, wanted.expression)
        except (BadExpression, BadTags):
            raise Answer(ResponseCode.FILTER_DATA_NOT_EXIST, _NO_FILTER) from None

    def _demand_filter(self, group: str, topic: str, version: int) -> None:
        filter_data = self._consumer_filters.get(topic, group)
        if filter_data is None:
            raise Answer(ResponseCode.FILTER_DATA_NOT_EXIST, _NO_FILTER)
        if filter_data.version < version:
            raise Answer(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")

    def filter_of(self, kind: str | None, expression: str) -> TagFilter | SqlFilter:
        """Raises Answer; BadTags, BadExpression: it can't be read."""
        if kind in TAG_KINDS:
            return tag_filter(expression)
        if not self._settings.now.property_filter:
            raise Answer(ResponseCode.SYSTEM_ERROR, NO_SQL.format(kind))
        if kind != SQL:
            raise BadExpression(f"unknown expression type {kind}")
        return self._sql_filters.of(expression)

    def _get(self, pull: _Pull) -> GetResult | RStoreError:
        stats, began = self._stats, perf_counter_ns()
        try:
            messages = self._store.get(pull.topic, pull.queue_id, pull.offset, pull.most, pull.tags)
        except RStoreError as error:
            return error
        if messages.status is GetMessageStatus.FOUND:
            took_ms = (perf_counter_ns() - began) // 1_000_000
            stats.got(pull.group, pull.topic, messages.message_count, messages.total_size, took_ms)
        else:
            stats.missed()
        return messages

    def _suggested(self, pull: _Pull, *, lags: bool) -> int:
        """The broker id at which the consumer had better ask next. Source: PullMessageProcessor#processRequest."""
        group = self._groups.find(pull.group) if self._settings.now.slave_read else None
        if group is None:
            return 0
        return group.which_broker_when_consume_slowly if lags else group.broker_id

    @staticmethod
    def _code(pull: _Pull, messages: GetResult | RStoreError) -> int:
        if isinstance(messages, RStoreError):
            return ResponseCode.SYSTEM_ERROR
        if messages.status in (GetMessageStatus.NO_MESSAGE_IN_QUEUE, GetMessageStatus.NO_MATCHED_LOGIC_QUEUE):
            return ResponseCode.PULL_NOT_FOUND if pull.offset == 0 else ResponseCode.PULL_OFFSET_MOVED
        return _CODES[messages.status]

    def _answer(self, pull: _Pull, messages: GetResult | RStoreError) -> RemotingCommand:
        code = self._code(pull, messages)
        if isinstance(messages, RStoreError):
            return pull.request.answer(code, str(messages), {})
        moved = code == ResponseCode.PULL_OFFSET_MOVED
        unsure = moved and self._role.is_slave and not self._store.config.offset_check_in_slave
        if unsure:  # a slave that lags can't tell: the consumer asks again, where its group is told to
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        ext = {
            "suggestWhichBrokerId": str(self._suggested(pull, lags=messages.suggest_from_slave and not unsure)),
            "nextBeginOffset": str(messages.next_begin_offset),
            "minOffset": str(messages.min_offset),
            "maxOffset": str(messages.max_offset),
        }
        if moved and not unsure:
            self._events.offset_moved(pull.group, pull.topic, pull.queue_id, pull.offset, messages.next_begin_offset)
        body = b"".join(messages.messages) if code == ResponseCode.SUCCESS else b""
        return pull.request.answer(code, _REMARKS[messages.status], ext, body)


def _wants(pull: _Pull, come: list[tuple[int, int]]) -> bool:
    """Whether one of those that came (next offset, tags code) may be for it."""
    return any(end > pull.offset and pull.tags.matches_queue(code, None) for end, code in come)


def _discard(table: dict[_Key, set[_Pull]], key: _Key, pull: _Pull) -> None:
    waiting = table.get(key)
    if waiting is not None:
        waiting.discard(pull)
        if not waiting:
            del table[key]
