"""How answers look: JSON for programs, tables for people. Progress and notes go to stderr.

rich is loaded only where something moves on a terminal.
"""

from __future__ import annotations

import contextlib
import json as codec
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.format.quantities import counted
from engine.format.shown import printable, size
from rstore_cli.grid import facts_lines, left, names_width, table_lines
from rstore_cli.screen import fold_text, is_terminal, paint, shorten, takes_colour, width

if TYPE_CHECKING:
    from rich.progress import Progress

    from engine.inspect.dump.number_rows import NumberRows
    from engine.inspect.store.odd import OddFile

__all__ = [
    "BATCHES",
    "SLOW",
    "Output",
    "Tick",
    "count",
    "encoder",
    "messages_in",
    "printable",
    "say",
    "say_not_read",
    "short",
    "size",
]

Tick = Callable[[int, int], None]
"""Progress: (done, total)."""

SLOW = 1.0
"""Seconds that something may take before its progress is shown."""
BATCHES = "A record of a topic with batch consume queues holds several messages, and is counted as one."
_BAR, _BAR_LEAST = 32, 8
_AT_ONCE = 256
"""Rows of numbers that are put into words at once: by the hundred each takes the least time."""


def say_not_read(output: Output, typed: Sequence[str], files: Iterable[OddFile]) -> None:
    """Name files beside the log's that were not read. `typed`: the words that name the store (StoreConfig.typed)."""
    next_step = shlex.join(("rstore", *typed, "doctor"))
    for odd in files:
        output.warn(f"! {odd.path} was not read: {odd.why}, {odd.size} bytes. Next: {next_step}")


def say(text: str, *, style: str | None = None) -> None:
    """A sentence on stderr, after what stdout has; one line, where there is no terminal to break it for."""
    sys.stdout.flush()
    for line in fold_text(text, width(sys.stderr)):
        print(paint(line, style) if style is not None and takes_colour(sys.stderr) else line, file=sys.stderr)


class Output:
    """Where a command's answer goes.

    `typed`: the arguments that named the store: sentences that name a command of rstore are printed with them.
    """

    def __init__(self, *, json: bool, quiet: bool, typed: tuple[str, ...] = ()) -> None:
        self._typed = typed
        self.json = json
        self.quiet = quiet
        self.ascii = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") != "utf8"
        self.encoded = encoder(ascii=self.ascii)
        self.width = width(sys.stdout)
        self.colour = takes_colour(sys.stdout)

    # --- JSON -------------------------------------------------------------------------------------------------------

    def document(self, value: Mapping[str, Any]) -> None:
        """One JSON document."""
        print(codec.dumps(value, ensure_ascii=self.ascii, indent=2 if is_terminal(sys.stdout) else None))

    def line(self, value: Mapping[str, Any]) -> None:
        """One JSON line of many."""
        sys.stdout.write(self.encoded(value) + "\n")

    def lines(self, rows: Iterable[Mapping[str, int | str]]) -> None:
        """As many JSON lines as there are rows, which have the same names."""
        template = ""
        for row in rows:
            if not template:
                template = "{" + ",".join(f"{self.encoded(name)}:%s" for name in row) + "}\n"
            sys.stdout.write(template % tuple([v if type(v) is int else self.encoded(v) for v in row.values()]))

    def number_lines(self, blocks: Iterable[NumberRows], limit: int | None = None) -> None:
        """The same of rows of numbers, many at a time; `limit`: of the first rows."""
        left = limit
        for block in blocks if left != 0 else ():
            rows = block if left is None else block.first(left)
            words = [f"{self.encoded(name)}:{self.encoded(value)}" for name, value in rows.same.items()]
            words = [word.replace("%", "%%") for word in words]
            words += [self.encoded(name).replace("%", "%%") + ":%d" for name in rows.fields]
            template = f"{{{','.join(words)}}}\n"
            for at in range(0, len(rows), _AT_ONCE):
                some = rows.numbers[at : at + _AT_ONCE]
                sys.stdout.write(template * len(some) % tuple(some.ravel().tolist()))
            if left is not None:
                left -= len(rows)
                if not left:
                    return

    # --- text -------------------------------------------------------------------------------------------------------

    def text(self, text: str = "", *, style: str | None = None) -> None:
        """A sentence for people, on stdout; on a terminal its lines are broken at blanks."""
        for line in fold_text(self._named(text), self.width):
            print(paint(line, style) if style is not None and self.colour else line)

    def raw(self, text: str) -> None:
        """Text for people as it is: messages, files."""
        print(text)

    def note(self, text: str) -> None:
        """Something beside the answer, on stderr; not with --quiet."""
        if not self.quiet:
            say(self._named(text))

    def warn(self, text: str) -> None:
        """Something beside the answer that has to be said."""
        say(self._named(text), style="yellow")

    def facts(self, rows: Sequence[tuple[str, str]], *, styles: Mapping[str, str] | None = None) -> None:
        """Names and values, one below the other; `styles`: of the values with these names."""
        names = names_width((name for name, _ in rows), self.width)
        for name, value in rows:
            style = (styles or {}).get(name)
            for line in facts_lines(name, self._named(value), names, self.width):
                if not self.colour:
                    print(line)
                    continue
                head, rest = line[:names].rstrip(), line[:names][len(line[:names].rstrip()) :] + line[names:]
                print(paint(head, "bold") + (paint(rest, style) if style else rest))

    def _named(self, text: str) -> str:
        """The text as who named a store can copy its commands."""
        if not self._typed or "rstore " not in text:
            return text
        from engine.inspect.next_step import for_store

        return for_store(self._typed, text)

    def table(
        self,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        numbers: Sequence[int] = (),
        whole: Sequence[int] = (),
    ) -> None:
        """A table; the columns `numbers` stand to the right. On a terminal it is as wide as that, at most.

        `whole`: columns whose text names a file, or is copied to the next command: never broken or shortened.
        """
        first, lines = table_lines(heads, rows, numbers, self.width, whole)
        for number, line in enumerate(lines):
            print(paint(line, "bold") if self.colour and number < first else line)

    def room_for_bars(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
        """Columns for bars beside a table's other columns; 0 where too few are left to tell anything."""
        room = _BAR if self.width is None else min(_BAR, left(heads, rows, self.width))
        return room if room >= _BAR_LEAST else 0

    def bar(self, share: float, width: int = _BAR) -> str:
        """A bar for a cell of a table: `share` (0 to 1) of `width`; what is more than nothing shows."""
        if share <= 0:
            return ""
        if self.ascii:
            return "#" * max(1, round(share * width))
        eighths = max(1, round(min(share, 1.0) * width * 8))
        return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()

    @contextlib.contextmanager
    def progress(self, label: str, *, is_bytes: bool = True) -> Iterator[Tick]:
        """A function to call with (done, total): a bar on stderr once it takes long, where there is a terminal."""
        if self.quiet or self.json or not is_terminal(sys.stderr):
            yield lambda done, total: None
            return
        bar = _Bar(label, is_bytes)
        try:
            yield bar
        finally:
            bar.stop()


class _Bar:
    """A progress bar that appears after a second."""

    def __init__(self, label: str, is_bytes: bool) -> None:
        self._label = label
        self._is_bytes = is_bytes
        self._began = time.monotonic()
        self._progress: Progress | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._progress is None:
            if time.monotonic() - self._began < SLOW:
                return
            self._progress = _rich_progress(self._is_bytes)
            self._progress.start()
            self._task = self._progress.add_task(self._label, total=total)
        self._progress.update(self._task, completed=done, total=total)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def encoder(*, ascii: bool) -> Callable[[Any], str]:  # noqa: A002 - json's own word
    """What makes a JSON line of a value. `ascii`: of ASCII characters only."""
    return codec.JSONEncoder(ensure_ascii=ascii, separators=(",", ":")).encode


def _rich_progress(is_bytes: bool) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    amount = [DownloadColumn(binary_units=True), TransferSpeedColumn()] if is_bytes else [MofNCompleteColumn()]
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *amount,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


# --- values as people read them --------------------------------------------------------------------------------------


count = counted


def messages_in(messages: int, records: int, record: str = "record") -> str:
    """1,818 messages in 1,866 records: what queues show, and what the log holds (prepared and inert ones, too)."""
    return f"{counted(messages, 'message', zero=True)} in {counted(records, record, zero=True)}"


def short(text: str, limit: int = 48) -> str:
    """A name for a table, safe for a terminal; the middle of a long one left out."""
    return shorten(printable(text), limit)
