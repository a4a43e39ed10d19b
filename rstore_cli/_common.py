"""What the commands share: exit codes, the options that every command has, sizes and times as people write them."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from engine.errors import InvalidArgument

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from rstore_cli.render import Output

OK = 0
FOUND = 1
"""Done, but there are problems; or a dry run that would change something."""
USAGE = 2
LOCKED = 3
REFUSED = 4
ENVIRONMENT = 5
INTERRUPTED = 130
PIPE_CLOSED = 141
"""Whoever read our output went away: as if SIGPIPE had ended us."""

USED_FROM_BROKER = frozenset({"brokerIP1", "listenPort"})
"""BrokerConfig's keys that name the address in new records (rstore put)."""

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_AGO = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|min|h|d|w)\s+ago", re.IGNORECASE)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


@dataclass(slots=True)
class Settings:
    """The options that every command has, before or behind its name.

    Attributes:
        store: --store, or RSTORE_STORE.
        config: -c / --config, or RSTORE_CONF.
        json: JSON on stdout.
        quiet: no notes, no progress.
        on_interrupt: what to say when Ctrl-C ends the command now.
        refused_plan: the plan of a change that was refused, for the error's JSON.
    """

    store: Path | None = None
    config: Path | None = None
    json: bool = False
    quiet: bool = False
    on_interrupt: str = "nothing was changed"
    refused_plan: dict[str, Any] | None = None

    def output(self) -> Output:
        """Where the command's answer goes."""
        from rstore_cli.render import Output

        return Output(json=self.json, quiet=self.quiet)

    def load(self) -> StoreConfig:
        """The store's settings: rstore.conf in the store, over it the file of -c, over it --store.

        Raises:
            InvalidArgument, StorageError: a file that can't be read, or a value that makes no sense.
        """
        from engine.config import of_store

        found = of_store(self.store, self.config)
        self._name_unknown(found)
        return found

    def _name_unknown(self, config: StoreConfig) -> None:
        if config.other.keys() - USED_FROM_BROKER and not self.quiet:
            names = sorted(config.other.keys() - USED_FROM_BROKER)
            some = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
            print(f"note: {self.config}: settings that rstore has no use for: {some}", file=sys.stderr)


def settings_of(context: typer.Context) -> Settings:
    """The settings of this run."""
    found = context.find_root().obj
    assert isinstance(found, Settings)
    return found


def parse_size(text: str, what: str) -> int:
    """Bytes (or a count) from "64M", "1GiB", "1.5k", "65536". Letters are powers of 1024, as in Apache's own defaults.

    Raises:
        InvalidArgument: it is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidArgument(f"{what}: no size: {text!r}", hint="like 65536, 64M or 1GiB")
    number, letter = match.groups()
    value = float(number) * 1024 ** " kmgt".index(letter.lower() or " ")
    if value != int(value):
        raise InvalidArgument(f"{what}: {text} is no whole number of bytes", hint="like 65536, 64M or 1GiB")
    return int(value)


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|d)?", re.IGNORECASE)


def parse_duration(text: str, what: str) -> int:
    """Ms from "30s", "5m", "500ms"; a bare number is seconds.

    Raises:
        InvalidArgument: it is no duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidArgument(f"{what}: no duration: {text!r}", hint="like 30s or 5m")
    return round(float(match.group(1)) * _UNITS_MS[(match.group(2) or "s").lower()])


def parse_time(text: str, what: str, now_ms: int | None = None) -> int:
    """Ms since 1970 from ISO 8601 (local time unless it says otherwise), epoch ms, or "2h ago".

    Raises:
        InvalidArgument: it is no time.
    """
    text = text.strip()
    if re.fullmatch(r"[0-9]+", text):
        return int(text)
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if text.lower() == "now":
        return now
    match = _AGO.fullmatch(text)
    if match is not None:
        return now - round(float(match.group(1)) * _UNITS_MS[match.group(2).lower()])
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"{what}: no time: {text!r}", hint='like 2024-05-01T03:00, 1714532400000 or "2h ago"'
        ) from None
