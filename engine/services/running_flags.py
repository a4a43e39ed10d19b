"""What the store may do now, and why not (Apache RunningFlags).

The bits are Apache's, so that `flag_bits` means the same to its tools. Each bit that is set keeps the error that
set it: `status` shows it, and a refused put carries it. Several can set the same bit, each under its own name (a disk
that is nearly full, a queue that can't be written): it is clear when the last of them has cleared it. In Apache the one
clears what the other has set.
"""

from __future__ import annotations

import enum
import threading

from engine.errors import RStoreError


class Flag(enum.IntFlag):
    """Apache's bits."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    WRITE_LOGICS_QUEUE_ERROR = 4
    WRITE_INDEX_FILE_ERROR = 8
    DISK_FULL = 16


_QUEUE_STOPPERS = Flag.NOT_WRITEABLE | Flag.WRITE_LOGICS_QUEUE_ERROR | Flag.WRITE_INDEX_FILE_ERROR
_STOPPERS = _QUEUE_STOPPERS | Flag.DISK_FULL


class RunningFlags:
    """The flags. Thread-safe.

    Attributes:
        readable: whether gets are served.
        writeable: whether puts are taken. Both are kept beside the bits, as every get and put asks for one of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bits = Flag(0)
        self.readable = True
        self.writeable = True
        self._set_by: dict[Flag, dict[str, RStoreError | None]] = {}

    @property
    def flag_bits(self) -> int:
        """All bits (Apache getFlagBits)."""
        return int(self._bits)

    @property
    def queue_writeable(self) -> bool:
        """Whether dispatch continues: a full disk alone does not stop it (Apache isCQWriteable)."""
        return not self._bits & _QUEUE_STOPPERS

    @property
    def errors(self) -> tuple[RStoreError, ...]:
        """What set the bits that are set, most severe bit first, and for each bit in the order in which it was set."""
        with self._lock:
            return self._known(~Flag(0))

    @property
    def error(self) -> RStoreError | None:
        """Why puts are refused, when something is known to have gone wrong."""
        return self.refusal[1]

    @property
    def refusal(self) -> tuple[bool, RStoreError | None]:
        """Whether puts are refused, and why, both as of one moment."""
        with self._lock:
            known = self._known(_STOPPERS)
            return bool(self._bits & _STOPPERS), known[0] if known else None

    def is_set(self, flag: Flag) -> bool:
        """Whether the bit is set."""
        return bool(self._bits & flag)

    def is_set_by(self, flag: Flag, by: str) -> bool:
        """Whether the bit is set under this name."""
        return by in self._set_by.get(flag, {})

    def set(self, flag: Flag, error: RStoreError | None = None, *, by: str = "") -> bool:
        """Set the bit; whether it was clear before. The first error of each that sets it stays."""
        with self._lock:
            was_clear = not self._bits & flag
            self._bits |= flag
            self._keep()
            errors = self._set_by.setdefault(flag, {})
            if errors.get(by) is None:
                errors[by] = error
            return was_clear

    def clear(self, flag: Flag, *, by: str = "") -> bool:
        """Take back what was set under this name; the bit is clear when nothing is left. Whether it was set so."""
        with self._lock:
            setters = self._set_by.get(flag, {})
            was_set = by in setters
            setters.pop(by, None)
            if not setters:
                self._bits &= ~flag
                self._keep()
            return was_set

    def _keep(self) -> None:
        self.readable = not self._bits & Flag.NOT_READABLE
        self.writeable = not self._bits & _STOPPERS

    def _known(self, flags: Flag) -> tuple[RStoreError, ...]:
        errors = [error for flag in sorted(self._set_by) if flag & flags for error in self._set_by[flag].values()]
        return tuple(error for error in errors if error is not None)
