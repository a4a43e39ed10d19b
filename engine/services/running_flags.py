"""What the store may do now, and why not (Apache RunningFlags).

The bits are Apache's, so that `flag_bits` means the same to its tools. Each bit that is set keeps the error that
set it: `status` shows it, and a refused put carries it.
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
    """The flags. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bits = Flag(0)
        self._errors: dict[Flag, RStoreError] = {}

    @property
    def flag_bits(self) -> int:
        """All bits (Apache getFlagBits)."""
        return int(self._bits)

    @property
    def readable(self) -> bool:
        """Whether gets are served."""
        return not self._bits & Flag.NOT_READABLE

    @property
    def writeable(self) -> bool:
        """Whether puts are taken."""
        return not self._bits & _STOPPERS

    @property
    def queue_writeable(self) -> bool:
        """Whether dispatch goes on: a full disk alone does not stop it (Apache isCQWriteable)."""
        return not self._bits & _QUEUE_STOPPERS

    @property
    def errors(self) -> tuple[RStoreError, ...]:
        """What set the bits that are set, most severe bit first."""
        with self._lock:
            return tuple(self._errors[flag] for flag in sorted(self._errors))

    @property
    def error(self) -> RStoreError | None:
        """Why puts are refused, when something is known to have gone wrong."""
        with self._lock:
            stopping = sorted(flag for flag in self._errors if flag & _STOPPERS)
            return self._errors[stopping[0]] if stopping else None

    def is_set(self, flag: Flag) -> bool:
        """Whether the bit is set."""
        return bool(self._bits & flag)

    def set(self, flag: Flag, error: RStoreError | None = None) -> bool:
        """Set the bit; whether it was clear before. The first error stays."""
        with self._lock:
            was_clear = not self._bits & flag
            self._bits |= flag
            if error is not None:
                self._errors.setdefault(flag, error)
            return was_clear

    def clear(self, flag: Flag) -> bool:
        """Clear the bit and forget its error; whether it was set before."""
        with self._lock:
            was_set = bool(self._bits & flag)
            self._bits &= ~flag
            self._errors.pop(flag, None)
            return was_set
