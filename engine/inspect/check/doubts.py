"""The records of a run that are suspect or unusual (engine.format.judge), held against queues and index.

Where a suspect record and its unit or index entries disagree, those are its witnesses. An unusual record may have been
sent so, and nothing tells, until a unit's tags code or an index entry's hash is not the one that the record gives: that
was written when the record was whole, so the record changed since, and is suspect from there on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.inspect.finding import place
from engine.log.doubts import Doubt

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from engine.inspect.finding import Findings
    from engine.log.source import Segment

MOST = 1 << 16
"""Records of each grade that are held against queues and index."""


class DoubtfulRecords:
    """Collects them, and notes what they are.

    Args:
        findings: gets `record-suspect` at once, `record-unusual` by `close`.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._suspects: set[int] = set()
        self._unusual: dict[int, tuple[Segment, str]] = {}
        self._arrays: dict[bool, NDArray[np.int64]] = {}

    def add(self, doubts: Iterable[Doubt], segment: Segment) -> None:
        """Those of a batch (`doubts_of`)."""
        for doubt in doubts:
            if doubt.unusual and len(self._unusual) < MOST:
                self._unusual[doubt.offset] = (segment, doubt.reason)
            else:
                self._note(doubt, segment)
            self._arrays.clear()

    def suspects(self, physical: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these physical offsets are those of suspect records."""
        return self._mask(physical, unusual=False)

    def contradicted(self, physical: NDArray[np.int64]) -> NDArray[np.bool_]:
        """As `suspects`; all unusual ones among them are suspect now: a unit or an entry of theirs says otherwise."""
        import numpy as np

        for offset in np.unique(physical[self._mask(physical, unusual=True)]).tolist():
            segment, reason = self._unusual.pop(offset)
            why = f"{reason}; its queue unit or an index entry disagrees"
            self._note(Doubt(offset, 0, why), segment)
            self._arrays.clear()
        return self.suspects(physical)

    def close(self) -> None:
        """Nothing more comes: what is unusual stays so."""
        for offset, (segment, reason) in self._unusual.items():
            self._note(Doubt(offset, 0, reason, True), segment)
        self._unusual.clear()
        self._arrays.clear()

    def _note(self, doubt: Doubt, segment: Segment) -> None:
        code = "record-unusual" if doubt.unusual else "record-suspect"
        group, where = place(segment.path, segment.offset), place(segment.path, doubt.offset)
        self._findings.add(code, group, where, f"{doubt.offset}: {doubt.reason}")
        if not doubt.unusual and len(self._suspects) < MOST:
            self._suspects.add(doubt.offset)

    def _mask(self, physical: NDArray[np.int64], *, unusual: bool) -> NDArray[np.bool_]:
        import numpy as np

        some = self._unusual if unusual else self._suspects
        if not some:
            return np.zeros(len(physical), dtype=np.bool_)
        if unusual not in self._arrays:
            self._arrays[unusual] = np.fromiter(some, dtype=np.int64, count=len(some))
        return np.isin(physical, self._arrays[unusual])
