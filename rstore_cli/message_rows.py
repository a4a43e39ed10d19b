"""Messages shown one after another, as JSON lines or text: what `get` and `query` print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.format.message_json import to_json
from engine.format.quantities import counted
from engine.inspect.next_step import command_line
from rstore_cli.messages import to_text

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.errors import FormatError
    from engine.format.message import StoredMessage
    from rstore_cli.render import Output

A_BODY, ONE_BODY = 200, 20_000
"""Characters of a body that are shown: of one among many, and of the only one. --json shows all."""


def show_plain(output: Output, message: StoredMessage) -> None:
    """Print a message that has just come, its body as the producer gave it."""
    if output.json:
        output.line(to_json(message, decompress=True))
        return
    for line in to_text(message, decompress=True):
        output.raw(line)


class Shower:
    """Shows messages of the store that `config` names, and counts them and those with a body CRC mismatch.

    Attributes:
        shown: messages so far.
        bad: those that are not sound, or can't be read.
        archived: those that come from the store's archive: they lie below the physical offset `archived_below` (None:
            no archive is read).
    """

    def __init__(
        self,
        output: Output,
        config: StoreConfig,
        *,
        decompress: bool,
        limit: int = A_BODY,
        archived_below: int | None = None,
    ) -> None:
        self.output = output
        self._next = f"Next: {command_line(config, 'verify-crc')}"
        self._check = f"Next: {command_line(config, 'check')}"
        self.shown = self.bad = self.archived = 0
        self._decompress = decompress
        self._limit = limit
        self._archived_below = archived_below

    def show(self, message: StoredMessage) -> None:
        """Print it."""
        self.shown += 1
        below = self._archived_below
        is_archived = below is not None and message.physical_offset < below
        self.archived += is_archived
        if self.output.json:
            row = to_json(message, decompress=self._decompress)
            self.output.line(row if below is None else {**row, "archived": is_archived})
        else:
            for line in to_text(message, decompress=self._decompress, limit=self._limit):
                self.output.raw(line)
        if not message.crc_ok:
            self.bad += 1
            self.output.warn(f"! body CRC mismatch at {message.physical_offset}. {self._next}")

    def broken(self, queue: str, error: FormatError) -> None:
        """Bytes that a queue names and that are no record."""
        self.bad += 1
        self.output.warn(f"! a message of {queue} can't be read: {error.message}. {self._next}")

    def tell_archived(self, where: str) -> None:
        """Say how many came from the archive."""
        if self.archived and not self.output.json:
            self.output.note(f"note: {counted(self.archived, 'message')} from the archive {where}")

    def gone(self, offsets: int) -> None:
        """So many offsets of a queue are passed over, as nothing that can be shown lies there."""
        self.bad += offsets
        self.output.warn(f"! {counted(offsets, 'offset points', 'offsets point')} at no sound message. {self._check}")
