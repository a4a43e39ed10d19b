"""The daemon's log: a JSON object a line, or text for a terminal; on stderr, or in a file that is rotated.

What is said again and again (each of ten thousand refused sends) is one line a second, with how many there were.
"""

from __future__ import annotations

import enum
import logging
import sys
from logging.handlers import RotatingFileHandler
from time import monotonic
from typing import TYPE_CHECKING, Any

from engine.errors import from_os_error
from rstore_cli.render import printable
from rstore_cli.screen import is_terminal

if TYPE_CHECKING:
    from pathlib import Path

LOGGER = "rstore"
_OTHERS = ("asyncio", "aiohttp")
"""Whose warnings belong into the log, too."""
FILE_SIZE = 64 << 20
FILES_KEPT = 8
_EVERY_S = 1.0
_KINDS_KEPT = 1000
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest was given by `extra`."""


class Level(enum.StrEnum):
    """Of lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Format(enum.StrEnum):
    """Of lines."""

    JSON = "json"
    TEXT = "text"


class Rarely(logging.Filter):
    """Lets a line pass once a second, by its text and its `why`; `more`: how many did not, since the last one."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, Any], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it passes. Whatever carries a traceback does."""
        if record.exc_info:
            return True
        key, now = (record.msg, getattr(record, "why", None)), monotonic()
        last, kept = self._last.get(key, (float("-inf"), 0))
        if now - last < _EVERY_S:
            self._last[key] = (last, kept + 1)
            return False
        if len(self._last) >= _KINDS_KEPT:
            self._last.clear()
        self._last[key] = (now, 0)
        if kept:
            record.more = kept
        return True


class _Text(logging.Formatter):
    """`12:00:00 WARNING a connection was refused (peer=1.2.3.4:5, why=too many connections)`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; what clients have said in it can't harm a terminal."""
        extra = ", ".join(f"{name}={value}" for name, value in vars(record).items() if name not in _OWN)
        text = printable(record.getMessage() + (f" ({extra})" if extra else ""))
        line = f"{self.formatTime(record)} {record.levelname} {text}"
        return line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"


def begin(level: Level, form: Format | None, path: Path | None) -> None:
    """Have the daemon's log written. Raises StorageError: the file can't be opened."""
    try:
        handler: logging.Handler = (
            logging.StreamHandler()
            if path is None
            else RotatingFileHandler(path, maxBytes=FILE_SIZE, backupCount=FILES_KEPT, encoding="utf-8")
        )
    except OSError as error:
        raise from_os_error(error, "opening the log file", path or "") from None
    as_text = form is Format.TEXT or (form is None and path is None and is_terminal(sys.stderr))
    handler.setFormatter(_Text() if as_text else _json())
    handler.addFilter(Rarely())
    for name in (LOGGER, *_OTHERS):
        logger = logging.getLogger(name)
        logger.setLevel(level.value.upper() if name == LOGGER else logging.WARNING)
        logger.propagate = False
        for old in logger.handlers[:]:
            logger.removeHandler(old)
        logger.addHandler(handler)


def _json() -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter

    return JsonFormatter(
        "{levelname}{name}{message}",
        style="{",
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "traceback"},
        timestamp="time",
        json_ensure_ascii=False,
    )
