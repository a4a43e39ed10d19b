"""How a command of a drill ended."""

from __future__ import annotations

from engine.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a command ended.

    Attributes:
        exit: the exit code.
        error: the error's code, None when there was none.
        summary: one line.
        changed: whether it had anything to change.
        findings: of the findings, their codes.
        log_begin, log_end: physical offsets where it left the log's first byte, and its end; None where that is not its
            business.
    """

    exit: int = 0
    error: str | None = None
    summary: str = ""
    changed: bool = False
    findings: tuple[str, ...] = ()
    log_begin: int | None = None
    log_end: int | None = None
