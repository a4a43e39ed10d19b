"""What a scrub is asked for, and what it tells."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.seals.explain import Explained

if TYPE_CHECKING:
    import threading

NOT_SOUND, NO_FILE, BAD_SEAL = "not sound", "no file", "seal damaged"
"""Kinds beside those of compare.py: damage that the judge of records sees in a segment without a seal; a sealed segment
between others has no file; its seal can't be read."""


@dataclass(frozen=True, slots=True)
class ScrubOptions:
    """How is scrubbed.

    Attributes:
        directory: where seals are kept; None: in the store.
        rate: bytes a second that are read at most; None: as fast as it goes.
        period_ms: a pass is spread over so long; None: it isn't.
        fresh: as `SegmentReader`.
        keep_state: note beside the seals how far it is.
        stop: set, it ends the run after the piece under way.
        until: `time.monotonic()` at which the run ends, too; None: with the pass.
    """

    directory: str | None = None
    rate: int | None = None
    period_ms: int | None = None
    fresh: bool = True
    keep_state: bool = True
    stop: threading.Event | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Wrong:
    """A range of a segment that is not as it should be.

    Attributes:
        segment: physical offset of the segment; `path`: its file.
        offset: physical offset of the range; `length`: bytes.
        kind: one of compare.py's, or of the above.
        is_sealed: whether a seal says so; False: the judge of records.
        written_ms: when the file was written after it was sealed, ms since 1970; None: it wasn't. Rot changes no time.
        explained: which records and which field.
    """

    segment: int
    path: str
    offset: int
    length: int
    kind: str
    is_sealed: bool
    written_ms: int | None = None
    explained: Explained = field(default_factory=Explained)

    def to_json(self) -> dict[str, Any]:
        """One of the JSON of `rstore scrub`."""
        return {
            "segment": self.segment,
            "file": self.path,
            "physicalOffset": self.offset,
            "bytes": self.length,
            "kind": self.kind,
            "sealed": self.is_sealed,
            "written": self.written_ms,
            "records": self.explained.records,
            "firstRecord": self.explained.first,
            "field": self.explained.field,
            "reason": self.explained.reason or None,
        }

    @classmethod
    def of_json(cls, row: dict[str, Any]) -> Wrong:
        """What `to_json` made. Raises ValueError, TypeError, LookupError."""
        explained = Explained(row["records"], row["firstRecord"], row["field"], row["reason"] or "")
        places = row["segment"], row["file"], row["physicalOffset"], row["bytes"]
        return cls(*places, row["kind"], row["sealed"], row["written"], explained)


@dataclass(slots=True)
class Scrubbed:
    """What a run has read.

    Attributes:
        finished: whether the pass has come to its end.
        sealed, unsealed: segments of the pass that were compared with a seal, and those that were only judged.
        read: bytes that this run has read; `seconds`: how long it took.
        wrong: what the pass has found, also before this run.
        oldest_ms: when the segment was read that was read longest ago, ms since 1970.
        began_ms: when the pass began.
        kept: whether the state could be kept.
        can_seal, can_heal: whether the store takes such a change.
    """

    finished: bool = False
    sealed: int = 0
    unsealed: int = 0
    read: int = 0
    seconds: float = 0.0
    wrong: list[Wrong] = field(default_factory=list)
    oldest_ms: int = 0
    began_ms: int = 0
    kept: bool = True
    can_seal: bool = True
    can_heal: bool = True

    @property
    def changed_bytes(self) -> int:
        """Bytes of the pages that differ from their seal, or can't be read."""
        return sum(one.length for one in self.wrong if one.is_sealed)

    def to_json(self) -> dict[str, Any]:
        """The JSON of `rstore scrub`."""
        return {
            "clean": not self.wrong,
            "finished": self.finished,
            "sealedSegments": self.sealed,
            "unsealedSegments": self.unsealed,
            "bytesRead": self.read,
            "began": self.began_ms,
            "oldestRead": self.oldest_ms,
            "wrong": [one.to_json() for one in self.wrong],
            "seconds": round(self.seconds, 3),
        }
