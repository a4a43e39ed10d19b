"""One queue's messages to the target, in order, each once.

A send whose answer did not come may be stored or not, and a process that was killed has told nobody what it had sent:
so before the first send, and after each that was not answered, the target is read from where the map ends, and what
carries this copy's marker counts as copied. Where the target gave a message another offset than the next one, what lies
between is read, too: a message of this copy that is already known is a double, and is counted.

A target that crashes may lose what it had acknowledged. So before the first send, after trouble, over each new
connection and at the end the last message of the map is looked for where the map says that it lies. Where it does not
lie there the map is cut back, and the source is read again from there on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import field
from typing import TYPE_CHECKING

from engine.client.pulling import EmptyAnswers
from engine.client.sending import SendRules, can_be_one_batch, request_of_stored, result_of
from engine.copying.marker import COPIED, Hop, hops, marked
from engine.copying.patient_queue import GROUP, TROUBLES, Patience, PatientQueue
from engine.dataclass import dataclass
from engine.errors import FormatError, NoRoute, PeerLost, Refused, RefusedByBroker
from engine.format import properties as property_words
from engine.format.quantities import counted
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from engine.client.client import ClusterClient
    from engine.client.messages import ReceivedMessage
    from engine.client.pace import Pace
    from engine.client.pulling import PullResult
    from engine.client.sending import SendResult
    from engine.copying.marker import BrokerPlace, WayBack
    from engine.copying.progress import QueueProgress

_SEND_S = 10.0
_LOOK_S = 0.05
_PAGE = 256
_BATCH_BYTES = 1 << 20
_DROPPED = frozenset(
    {
        *(property_words.TRAN_MSG, property_words.DELAY, property_words.REAL_TOPIC, property_words.REAL_QID),
        *(property_words.INNER_MULTI_QUEUE_OFFSET, "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"),
    }
)
"""A broker would delay the message once more, or take it for a half message."""
_LATER = frozenset(
    {
        *(ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE),
        *(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION),
    }
)
"""Refusals that may pass."""


@dataclass(slots=True)
class CopyWork:
    """What all queues of a copy have in common.

    Attributes:
        id: of the copy, in its markers.
        skips_refused: a message that the target's broker refuses is left out; otherwise it ends the copy.
        patience_s: how long a broker that is away or busy is waited for.
        note: is told what a reader should know.
    """

    id: str
    source: ClusterClient
    target: ClusterClient
    way_back: WayBack
    pace: Pace
    skips_refused: bool
    patience_s: float
    note: Callable[[str], None]
    rules: SendRules = field(default_factory=lambda: SendRules(GROUP))


class _MapCutError(Exception):
    """The target has lost messages of the map, which is cut back: the source is read again from its end on."""


class QueueCopier:
    """See the module. For one loop.

    Args:
        place: the source queue's broker.
    """

    def __init__(self, work: CopyWork, progress: QueueProgress, place: BrokerPlace) -> None:
        self._work = work
        self._progress = progress
        self._map = progress.map
        self._place = place
        self._patience = Patience(work.patience_s, work.note)
        self._source = PatientQueue(work.source, progress.source, self._patience)
        self._target = PatientQueue(work.target, progress.target, self._patience)
        self._empty = EmptyAnswers()
        self._looked_over: object = None

    async def copy(self, end: int | None) -> None:
        """Copy what the source has up to this offset; None: without an end.

        Raises:
            Refused: the source's queue ends before what was copied.
            PeerLost: a broker was away for longer than the patience. RefusedByBroker: a message is not taken.
            FormatError: an answer makes no sense.
        """
        await self._demand_source(self._map.following)
        await self._look_again()
        while True:
            try:
                async with aclosing(self._pages(end)) as pages:
                    async for page in pages:
                        await self._take(page)
                if not await self._look_again():
                    return
            except _MapCutError:
                continue

    # --- the source -------------------------------------------------------------------------------------------------

    async def _demand_source(self, known: int) -> None:
        end = await self._source.settled(known)
        if end < known:
            raise Refused(
                f"{self._source} ends at offset {end} of the source, and messages up to {known} were copied",
                hint="the source is not what it was: begin a new copy with another directory (--progress DIR)",
            )

    async def _pages(self, end: int | None) -> AsyncGenerator[tuple[ReceivedMessage, ...]]:
        """Pages of the source from the map's end on, one ahead of who takes them."""
        at = self._map.following
        pulling: asyncio.Task[PullResult] | None = None
        loop = asyncio.get_running_loop()
        try:
            while end is None or at < end:
                if pulling is None:
                    pulling = loop.create_task(self._page(at, wait=end is None))
                result = await pulling
                pulling = None
                begin, at = at, max(at, result.next_offset)
                if end is None or at < end:
                    pulling = loop.create_task(self._page(at, wait=end is None))
                page = tuple(one for one in result.messages if end is None or one.queue_offset < end)
                yield page
                following = at if end is None else min(at, end)
                self._progress.deleted += following - begin - len(page)
                self._map.leave_out(following - 1)
        finally:
            if pulling is not None:
                pulling.cancel()
                await asyncio.gather(pulling, return_exceptions=True)

    async def _page(self, at: int, *, wait: bool) -> PullResult:
        """What the source has from here on; where nothing is waited for it must have something."""
        while True:
            asked_s = time.monotonic()
            try:
                result = await self._source.pull(at, _PAGE, wait=wait)
            except TROUBLES as error:
                await self._source.wait(error)
                continue
            if result.next_offset > at or (wait and result.next_offset == at):
                self._patience.over()
                await asyncio.sleep(self._empty.pause_s(result, at, time.monotonic() - asked_s))
                return result
            since = self._patience.since
            await self._demand_source(at)
            self._patience.since = since  # that the broker told an end is no end of this trouble
            await self._source.wait(PeerLost(f"{self._source} shows no message at offset {at} any more"))

    # --- the target -------------------------------------------------------------------------------------------------

    async def _take(self, page: tuple[ReceivedMessage, ...]) -> None:
        """Send the messages of a page, as many in a request as go together."""
        together: list[tuple[ReceivedMessage, dict[str, str]]] = []
        size = 0
        for message in page:
            if message.queue_offset < self._map.following:
                continue
            properties = dict(message.properties)
            if self._work.way_back.leads_to(properties):
                await self._send_all(together)
                together, size = [], 0
                self._map.leave_out(message.queue_offset)
                self._progress.left_out += 1
                continue
            own = message.stored.total_size
            if together and (
                size + own > _BATCH_BYTES
                or property_words.INNER_MULTI_DISPATCH in properties
                or property_words.INNER_MULTI_DISPATCH in together[0][1]
                or not can_be_one_batch(together[0][0].stored, message.stored)
            ):
                await self._send_all(together)
                together, size = [], 0
            together.append((message, self._marked(message, properties)))
            size += own
        await self._send_all(together)

    def _marked(self, message: ReceivedMessage, properties: dict[str, str]) -> dict[str, str]:
        stored = message.stored
        hop = Hop(self._work.id, self._place, stored.queue_id, stored.queue_offset, stored.store_timestamp)
        return marked({name: value for name, value in properties.items() if name not in _DROPPED}, hop)

    async def _send_all(self, together: list[tuple[ReceivedMessage, dict[str, str]]]) -> None:
        """Send messages as one request, until they are stored or left out."""
        if together:
            await self._work.pace.wait(len(together))
        while together:
            try:
                if await self._target.connection() is not self._looked_over:
                    await self._demand_kept()
                    together = [one for one in together if one[0].queue_offset >= self._map.following]
                    continue
                result = await self._send(together)
            except (NoRoute, PeerLost) as error:
                await self._target.wait(error)
                await self._demand_kept()
            except RefusedByBroker as error:
                if error.response in _LATER:
                    await self._target.wait(error)
                elif len(together) > 1:
                    for one in together:
                        await self._send_all([one])
                    return
                else:
                    self._refused(together[0][0], error)
            else:
                self._patience.over()
                await self._stored(together, result.queue_offset)
                return
            together = [one for one in together if one[0].queue_offset >= self._map.following]

    async def _send(self, together: list[tuple[ReceivedMessage, dict[str, str]]]) -> SendResult:
        queue = self._progress.target
        records, properties = [one.stored for one, _ in together], [own for _, own in together]
        request = request_of_stored(records, properties, queue.topic, self._work.rules)
        address = await self._target.calls.address(queue)
        answer = await self._work.target.peers.ask(
            address, request.code, request.to(queue), request.body, timeout_s=_SEND_S
        )
        return result_of(answer, request, queue, address)

    async def _stored(self, together: list[tuple[ReceivedMessage, dict[str, str]]], first: int) -> None:
        """Messages have this target offset and those after it.

        Raises:
            _MapCutError: messages of the map lay there, and are lost. FormatError: they do lie there.
        """
        if first < self._map.target_end:
            await self._demand_lost(together[0][0].queue_offset, first, first + len(together))
            # What was lost comes before these: they are sent once more, after it.
            self._progress.doubles += len(together)
            self._progress.looked = first + len(together)
            self._note_lost(self._progress.cut(first), first)
            raise _MapCutError
        if first > self._progress.looked:
            await self._look(first)
        for number, (message, _) in enumerate(together):
            self._note(message.queue_offset, first + number)
        self._progress.looked = first + len(together)

    def _note(self, source: int, target: int) -> bool:
        """A message of this copy lies there; whether it is the first such one."""
        if source < self._map.following:
            self._progress.doubles += 1
            return False
        self._map.add(source, target)
        return True

    def _refused(self, message: ReceivedMessage, error: RefusedByBroker) -> None:
        queue = self._progress.source
        where = f"message {message.queue_offset} of queue {queue.topic}/{queue.queue_id} of {queue.broker}"
        if not self._work.skips_refused:
            raise RefusedByBroker(f"{where}: {error.message}", hint="--skip-refused leaves such messages out")
        self._work.note(f"{where} is left out: {error.message}")
        self._map.leave_out(message.queue_offset)
        self._progress.refused += 1

    # --- what the target has already --------------------------------------------------------------------------------

    async def _demand_kept(self) -> None:
        """Raises _MapCutError: the target has lost messages of the map."""
        if await self._look_again():
            raise _MapCutError

    async def _look_again(self) -> int:
        """Cut the map back to what the target still has, or look at what came after it.

        Returns:
            How many messages of the map the target has lost.
        """
        try:
            self._looked_over = await self._target.connection()
        except TROUBLES:
            self._looked_over = None
        end = await self._target.settled(self._progress.looked)
        lost = self._progress.cut(end)
        lost += self._progress.cut(await self._true_end())
        if lost:  # what of this copy lies after the cut is in the wrong order, and is copied again
            self._progress.looked = end
            self._note_lost(lost, end)
            return lost
        self._progress.looked = min(self._progress.looked, end)
        await self._look(end)
        return 0

    def _note_lost(self, lost: int, end: int) -> None:
        self._work.note(
            f"{self._target} of the target has lost its end and continued at offset {end}: "
            f"{counted(lost, 'message')} to be copied again"
        )

    async def _demand_lost(self, source: int, first: int, end: int) -> None:
        """A message was stored where the map has another one: the target must show the new one there."""
        await self._target.settled(end)
        if not await self._lies(source, first):
            raise FormatError(
                f"{self._target} has given offset {first} a second time, and does not show the new message there"
            )

    async def _true_end(self) -> int:
        """The target offset after the last message of the map that lies where the map says; the base without one.

        What a broker loses is the end of a queue: all messages before one that lies there do, too.
        """
        low, high = 0, self._map.copied
        asked = high - 1
        while low < high:
            if await self._lies(*self._map.place(asked)):
                low = asked + 1
            else:
                high = asked
            asked = (low + high) // 2
        return self._map.place(low - 1)[1] + 1 if low else self._map.base

    async def _lies(self, source: int, target: int) -> bool:
        """Whether the target has a message of the source at this offset, or had it: it has deleted it since."""
        result = await self._target.shown(target, 1)
        first = next(iter(result.messages), None)
        if first is None or first.queue_offset != target:
            return result.next_offset > target
        return self._source_of(first) == source

    async def _look(self, end: int) -> None:
        """Read the target up to this offset for messages of this copy."""
        while self._progress.looked < end:
            result = await self._target.shown(self._progress.looked, _PAGE)
            for message in result.messages:
                if message.queue_offset < end:
                    self._recognise(message)
            if result.next_offset <= self._progress.looked:  # acknowledged, and not in the queue yet
                known = self._progress.looked + 1
                if await self._target.settled(known, self._work.patience_s) < known:
                    raise PeerLost(
                        f"{self._target} has become shorter than {known}",
                        hint="the same command again copies what it has lost",
                    )
                await asyncio.sleep(_LOOK_S)
            self._progress.looked = max(self._progress.looked, min(end, result.next_offset))

    def _recognise(self, message: ReceivedMessage) -> None:
        source = self._source_of(message)
        if source is not None:
            self._progress.before += self._note(source, message.queue_offset)

    def _source_of(self, message: ReceivedMessage) -> int | None:
        """The source offset that the marker of a message has; None: it is not of this copy and queue."""
        if COPIED not in message.properties:
            return None
        last = hops(message.properties)[-1:]
        place = (self._work.id, self._place.broker, self._progress.source.queue_id)
        if last and (last[0].copy, last[0].place.broker, last[0].queue_id) == place:
            return last[0].offset
        return None
