"""From messages that follow one another to the bytes of their records, many at a time: what puts of a long list take.

They are what `engine.log.prepare` makes of each alone, in their order, and each has a topic, queue, hosts and times of
its own. A run ends before a message that is not plain: one that is refused, delayed, part of a transaction, for further
queues. That one is put alone, where the rules of `engine.log.prepare` are. Kernels encode; without numba there are no
runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engine.format import properties
from engine.format.message import Message
from engine.log.prepare import Destination, Preparer, raw_properties
from engine.log.results import MessageRefused
from engine.log.run_columns import RunColumns

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np
    from numpy.typing import NDArray

    from engine.config import StoreConfig
    from engine.log.derive import TopicQueue
    from engine.log.kernels.encode_run import Templates

MANY = 4096
"""Messages that are put one by one before the kernels are loaded: dispatch is about to load its own then."""
LEAST = 16
"""Messages of a run at least: fewer are put one by one in less time."""


class PreparedRun:
    """Plain messages, ready to be appended.

    Attributes:
        records: uint8[any], their records.
        starts: int64[n + 1], where each begins, and where the last one ends.
        queues: those that they go to; the templates have their numbers.
    """

    __slots__ = ("_kernels", "_templates", "_which", "queues", "records", "starts")

    def __init__(
        self,
        kernels: ModuleType,
        records: NDArray[np.uint8],
        starts: NDArray[np.int64],
        which: NDArray[np.int64],
        templates: Templates,
        queues: Sequence[TopicQueue],
    ) -> None:
        self._kernels = kernels
        self._templates = templates
        self._which = which
        self.records = records
        self.starts = starts
        self.queues = queues

    def __len__(self) -> int:
        return len(self._which)

    def settle(
        self, first: int, stop: int, following: NDArray[np.int64], physical_offset: int, store_timestamp: int
    ) -> NDArray[np.int64]:
        """Fill in what only the append lock knows of some of them; the queue offset of each, int64[stop - first].

        Args:
            first, stop: which.
            following: int64[len(queues)], the next queue offset of each queue; moved on.
            physical_offset: of the first one.
            store_timestamp: ms.
        """
        offsets: NDArray[np.int64] = self._kernels.settle(
            self.records, self.starts[first : stop + 1], self._which[first:stop], self._templates, following,
            physical_offset, store_timestamp,
        )  # fmt: skip
        return offsets


class RunPreparer:
    """Prepares runs by a store's settings. For one thread at a time.

    Args:
        config: settings.
        preparer: knows destinations.
    """

    def __init__(self, config: StoreConfig, preparer: Preparer) -> None:
        self._preparer = preparer
        self._max_message_size = config.max_message_size
        self._max_record = preparer.max_record
        self._reserved = preparer.reserved
        self._special = [properties.DELAY]
        if config.enable_multi_dispatch:
            self._special.append(properties.INNER_MULTI_DISPATCH)
        self._left: int | None = MANY  # messages before the kernels are loaded; None: there are none
        self._kernels: ModuleType | None = None

    def run(self, messages: Sequence[Message]) -> PreparedRun | None:
        """The plain messages that they begin with; None: too few, or they are put one by one anyhow."""
        kernels = self._loaded(len(messages))
        if kernels is None or len(messages) < LEAST:
            return None
        if isinstance(messages, RunColumns):
            prepared_run = self._of_columns(kernels, messages)
            if prepared_run is not None:
                return prepared_run
        import numpy as np

        topics, bodies, queue_ids, names, flags, sys_flags, born, born_hosts, store_hosts, times, prepared = zip(
            *messages, strict=True
        )
        # Hosts by identity: those of messages alike are one object, as a rule, and an equal one is another template.
        by_host = map(id, born_hosts), map(id, store_hosts)
        alike = list(zip(topics, queue_ids, flags, sys_flags, times, *by_host, strict=True))
        end = self._first_not_plain(names, prepared)
        numbers: dict[tuple[object, ...], int] = {}
        destinations: list[Destination] = []
        for kind, message in dict(zip(alike[:end], messages, strict=False)).items():
            try:
                destinations.append(self._preparer.destination(message))
            except MessageRefused:
                end = min(end, alike.index(kind))
            else:
                numbers[kind] = len(numbers)
        raws = self._raws(names[:end])
        if len(raws) < LEAST:
            return None
        which = np.array([numbers[kind] for kind in alike[: len(raws)]], dtype=np.int64)
        body_length, own_length = (
            np.fromiter(map(len, texts), dtype=np.int64, count=len(raws)) for texts in (bodies[: len(raws)], raws)
        )
        queues, templates = _templates(kernels, destinations)
        count = kernels.that_fit(body_length, own_length, which, templates, self._max_message_size, self._max_record)
        if count < LEAST:
            return None
        try:
            born_at = np.array(born[:count], dtype=np.int64)
        except OverflowError:
            return None
        records, starts = kernels.encode(
            b"".join(bodies[:count]), body_length[:count], b"".join(raws[:count]), own_length[:count], which[:count],
            born_at, templates,
        )  # fmt: skip
        return PreparedRun(kernels, records, starts, which[:count], templates, queues)

    def _of_columns(self, kernels: ModuleType, run: RunColumns) -> PreparedRun | None:
        """The same without an object a message; None: some may not be plain, so that each has to be looked at."""
        if self._reserved or any(map(run.may_have, self._special)):
            return None
        try:
            destinations = [self._preparer.destination(message) for message in run.samples()]
        except MessageRefused:
            return None
        import numpy as np

        queues, templates = _templates(kernels, destinations)
        count = kernels.that_fit(
            run.body_length, run.own_length, run.which, templates, self._max_message_size, self._max_record
        )
        if count < len(run):
            return None
        born = np.full(count, run.born_timestamp, dtype=np.int64)
        records, starts = kernels.encode(
            run.bodies, run.body_length, run.names, run.own_length, run.which, born, templates
        )
        return PreparedRun(kernels, records, starts, run.which, templates, queues)

    def _first_not_plain(self, names: Sequence[Mapping[str, str]], prepared: Sequence[int]) -> int:
        """Which message is delayed, for further queues or part of a transaction; how many there are, if none is."""
        end = len(names)
        if any(prepared):
            end = next(i for i, offset in enumerate(prepared) if offset)
        for special in self._special:
            if special in set().union(*names):
                end = next((i for i, own in enumerate(names[:end]) if special in own), end)
        return end

    def _raws(self, names: Sequence[Mapping[str, str]]) -> list[bytes]:
        """Properties as stored, up to the first that can't be; their length may be too much."""
        if not self._reserved:
            separator, name_value = properties.SEPARATOR.join, properties.NAME_VALUE.join
            return [separator(map(name_value, own.items())).encode("utf-8", "replace") for own in names]
        raws: list[bytes] = []
        for own in names:
            try:
                raws.append(raw_properties(own, self._reserved))
            except MessageRefused:
                break
        return raws

    def _loaded(self, count: int) -> ModuleType | None:
        if self._left is None or self._kernels is not None:
            return self._kernels
        self._left -= min(count, LEAST)  # so many are put one by one then
        if self._left > 0:
            return None
        try:
            from engine.log.kernels import encode_run
        except ImportError:
            self._left = None
            return None
        self._kernels = encode_run
        return encode_run


def _templates(kernels: ModuleType, destinations: Sequence[Destination]) -> tuple[list[TopicQueue], Templates]:
    """The queues, and the templates with the numbers of these."""
    numbers: dict[TopicQueue, int] = {}
    places = [numbers.setdefault(one.queue, len(numbers)) if one.numbered else -1 for one in destinations]
    return list(numbers), kernels.Templates.of([one.template for one in destinations], places)
