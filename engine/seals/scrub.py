"""`scrub`: every complete segment is read again and compared with its seal, at a pace, within a period; then anew.

Theory. A *pass* reads each segment once; which ones it has read is kept (scrub_state.py), so that a pass continues
after any end. A segment without a seal is judged by the judge of records alone. Nothing of the store is written.

What differs is read a second time before it is reported, and then explained by the judge of records (explain.py).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError, OutsideStore, StorageError
from engine.files.low_priority import BytePace
from engine.inspect.check.verify import verify
from engine.inspect.store.change_gate import ChangeKind, hindering
from engine.inspect.store.survey import survey
from engine.log.source import Segment
from engine.seals.compare import CHANGED, UNREADABLE, Comparison, SegmentReader
from engine.seals.directory import read_seal_in, sealed_offsets, seals_directory
from engine.seals.explain import Explained, explain
from engine.seals.make import complete_segments
from engine.seals.scrub_result import BAD_SEAL, NO_FILE, NOT_SOUND, Scrubbed, Wrong
from engine.seals.scrub_state import ScrubState, SegmentState, read_state, write_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.seals.compare import Difference
    from engine.seals.scrub_result import ScrubOptions
    from engine.seals.seal import Seal

_NOTE_MS = 15_000
"""How often the place within a segment is kept."""
_MOST_NAMED = 1000
"""Ranges of a segment that are explained and kept."""


@dataclass(frozen=True, slots=True)
class _Due:
    """A segment of the pass: its seal, or why there is none that can be read; `path` None: it has no file."""

    segment: Segment
    seal: Seal | None
    problem: str
    is_there: bool = True


def scrub(
    disk: Disk,
    config: StoreConfig,
    options: ScrubOptions,
    progress: Callable[[int, int], None] | None = None,
    tell: Callable[[Wrong], None] | None = None,
) -> Scrubbed:
    """Go on with the pass under way, or begin one; until its end, or until the options say so.

    Args:
        disk: how files are reached.
        config: names the store.
        options: how.
        progress: told the bytes of the pass that are read, and all of them.
        tell: told what is found, as it is found.

    Raises:
        NotAStore, StorageError.
    """
    began = time.monotonic()
    run = _Pass(disk, survey(disk, config), options, progress, tell)
    result = run.run()
    result.seconds = time.monotonic() - began
    return result


class _Pass:
    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        options: ScrubOptions,
        progress: Callable[[int, int], None] | None,
        tell: Callable[[Wrong], None] | None,
    ) -> None:
        self._disk = disk
        self._files = files
        self._options = options
        self._progress = progress
        self._tell = tell
        self._directory = options.directory or seals_directory(files.root)
        # Into a store of RocketMQ 5 nothing is written.
        self._keeps = options.keep_state and (options.directory is not None or not files.newer)
        self._state = read_state(disk, self._directory) if self._keeps else ScrubState()
        self._stop = options.stop or threading.Event()
        self._pace = BytePace(options.rate, self._stop)
        self._result = Scrubbed(
            can_seal=not hindering(files.newer, ChangeKind.SEAL), can_heal=not hindering(files.newer, ChangeKind.HEAL)
        )
        self._total = self._done = 0
        self._noted = 0

    def run(self) -> Scrubbed:
        state, result = self._state, self._result
        if state.finished or not state.began:
            state.began, state.finished, state.at, state.ranges = self._disk.now_ms(), 0, None, []
        due = self._due()
        self._forget_others(due)
        self._total = sum(one.segment.size for one in due)
        result.began_ms = state.began
        for one in due:
            offset = one.segment.offset
            if state.is_read(offset):
                result.wrong += _known(state.segments[offset])
                self._done += one.segment.size
            elif self._is_over() or not self._segment(one):
                break
            if one.seal is None:
                result.unsealed += 1
            else:
                result.sealed += 1
        else:
            state.finished = self._disk.now_ms()
            result.finished = True
        self._note(force=True)
        result.oldest_ms = state.oldest()
        return result

    # --- which ------------------------------------------------------------------------------------------------------

    def _due(self) -> list[_Due]:
        """The segments of a pass, by offset: complete ones, those that are sealed and have no such file, the last."""
        files = self._files
        sealed = set(sealed_offsets(self._disk, self._directory))
        complete = complete_segments(self._disk, files)
        due = [self._with_seal(one) if one.offset in sealed else _Due(one, None, "") for one in complete]
        there = {one.offset for one in files.log}
        due += [
            self._without_file(offset)
            for offset in sealed - there
            if not files.log or files.log[0].offset < offset < files.log[-1].offset
        ]
        due += [_Due(one, None, "") for one in files.log if one.offset not in {d.segment.offset for d in due}]
        return sorted(due, key=lambda one: one.segment.offset)

    def _with_seal(self, segment: Segment) -> _Due:
        try:
            return _Due(segment, read_seal_in(self._disk, self._directory, segment.offset), "")
        except (FormatError, StorageError) as error:
            return _Due(segment, None, str(error))

    def _without_file(self, offset: int) -> _Due:
        """A sealed segment of which no file of the right length is there."""
        size = self._files.config.mapped_file_size_commit_log
        odd = next((o.path for o in self._files.odd if self._is_part(o.path, offset)), None)
        due = self._with_seal(Segment(offset, size, odd or ""))
        return _Due(due.segment, due.seal, due.problem, is_there=odd is not None)

    def _is_part(self, path: str, offset: int) -> bool:
        """Whether a file holds some of the segment."""
        entry = self._disk.look(path) if path.endswith(f"{offset:020d}") else None
        return entry is not None and entry.is_file and entry.size > 0

    def _forget_others(self, due: list[_Due]) -> None:
        """Segments that are deleted are no longer in the state."""
        offsets = {one.segment.offset for one in due}
        state = self._state
        for offset in state.segments.keys() - offsets:
            del state.segments[offset]
        if state.at is not None and state.at[0] not in offsets:
            state.at, state.ranges = None, []

    # --- one segment ------------------------------------------------------------------------------------------------

    def _segment(self, due: _Due) -> bool:
        """Read a segment; whether to its end."""
        segment = due.segment
        before = self._done
        try:
            if not due.is_there:
                wrong = [Wrong(segment.offset, "", segment.offset, segment.size, NO_FILE, is_sealed=True)]
            elif due.seal is None:
                judged = self._judge(due)
                if judged is None:
                    return False
                wrong = judged
            else:
                compared = self._compare(segment, due.seal)
                if compared is None:
                    return False
                wrong = compared
        except StorageError:
            if self._disk.exists(segment.path):
                raise
            wrong = []  # a broker has deleted it: retention begins at the front
        self._done = before + segment.size
        self._result.wrong += wrong
        if self._tell is not None:
            for one in wrong:
                self._tell(one)
        state = self._state
        state.segments[segment.offset] = SegmentState(self._disk.now_ms(), [one.to_json() for one in wrong])
        state.at, state.ranges = None, []
        self._note()
        return True

    def _compare(self, segment: Segment, seal: Seal) -> list[Wrong] | None:
        """What differs from the seal; None: the run ends before the segment does."""
        done = Comparison()
        state = self._state
        if state.at is not None and state.at[0] == segment.offset and state.at[1] <= seal.piece_count:
            done = Comparison(state.at[1], list(state.ranges))
            self._done += min(segment.size, sum(seal.piece_range(number)[1] for number in range(done.pieces)))
        reader = SegmentReader(self._disk, segment.path, seal, total=self._total, fresh=self._options.fresh)

        def between(size: int) -> bool:
            state.at, state.ranges = (segment.offset, done.pieces), done.differences
            self._note()
            return self._wait(size)

        try:
            if not reader.run(done, between):
                return None
        finally:
            reader.close()
        differences = done.differences
        mtime_ns = self._disk.stat(segment.path).mtime_ns
        written = None if mtime_ns == seal.mtime_ns else mtime_ns // 1_000_000
        ranges = [(segment.offset + position, length) for position, length, _ in differences[:_MOST_NAMED]]
        explained = self._explain(segment, ranges, differences)
        return [
            Wrong(segment.offset, segment.path, offset, length, kind, True, written, what)
            for (offset, length), (_, _, kind), what in zip(ranges, differences, explained, strict=False)
        ]

    def _explain(
        self, segment: Segment, ranges: list[tuple[int, int]], differences: list[Difference]
    ) -> list[Explained]:
        if not any(kind in (CHANGED, UNREADABLE) for _, _, kind in differences):
            return [Explained()] * len(ranges)
        return explain(self._disk, segment, ranges, max_message_size=self._files.config.max_message_size)

    def _judge(self, due: _Due) -> list[Wrong] | None:
        """What the judge of records says of a segment without a seal; None: the run ends."""
        segment = due.segment
        wrong = []
        if due.problem:
            wrong.append(
                Wrong(
                    segment.offset,
                    segment.path,
                    segment.offset,
                    segment.size,
                    BAD_SEAL,
                    False,
                    explained=Explained(reason=due.problem),
                )
            )
        if not self._wait(0):
            return None
        before = self._done
        read = 0

        def tick(done: int, _: int) -> None:
            nonlocal read
            self._done = before + read
            self._pace_for(done - read)
            self._count(done - read)
            read = done

        verified = verify(self._disk, self._files.config, start=segment.offset, end=segment.end, jobs=1, progress=tick)
        wrong += [
            Wrong(
                segment.offset,
                segment.path,
                bad.offset,
                bad.length,
                NOT_SOUND,
                False,
                explained=Explained(1, bad.offset, None, bad.reason),
            )
            for bad in [*verified.bad, *verified.suspect][:_MOST_NAMED]
            if segment.offset <= bad.offset < segment.end
        ]
        return wrong

    # --- pace and state ---------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        until = self._options.until
        return self._stop.is_set() or (until is not None and time.monotonic() >= until)

    def _wait(self, size: int) -> bool:
        """Wait until `size` more bytes may be read; False: the run ends now."""
        if self._is_over():
            return False
        self._pace_for(size)
        if self._stop.is_set():
            return False
        self._count(size)
        return True

    def _pace_for(self, size: int) -> None:
        period = self._options.period_ms
        if period is not None:
            left_ms = self._state.began + period - self._disk.now_ms()
            needed = None if left_ms <= 0 else max(1.0, (self._total - self._done) * 1000 / left_ms)
            rates = [rate for rate in (needed, self._options.rate) if rate is not None]
            self._pace.rate = min(rates) if rates else None
        self._pace.wait(size)

    def _count(self, size: int) -> None:
        self._done += size
        self._result.read += size
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)

    def _note(self, *, force: bool = False) -> None:
        """Keep the state, every few seconds; where that can't be done, the scrub goes on."""
        now = self._disk.now_ms()
        if not self._keeps or not self._result.kept or (not force and now - self._noted < _NOTE_MS):
            return
        try:
            write_state(self._disk, self._directory, self._state)
        except (StorageError, OutsideStore):
            self._result.kept = False
        self._noted = now


def _known(state: SegmentState) -> list[Wrong]:
    """What an earlier run of the pass has found."""
    try:
        return [Wrong.of_json(row) for row in state.wrong]
    except (ValueError, TypeError, LookupError):
        return []
