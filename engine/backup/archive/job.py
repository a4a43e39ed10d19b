"""What a daemon has its archiving process do (child.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass

if TYPE_CHECKING:
    from engine.config import StoreConfig


@dataclass(frozen=True, slots=True)
class ArchiveAccess:
    """Where a store's archive is: the repository's location, the store's name there (None: as noted), and what has its
    key: a file or a program (else RSTORE_REPO_KEY). It holds no key."""

    location: str
    name: str | None = None
    key_file: str | None = None
    key_command: str | None = None

    @property
    def key_words(self) -> tuple[str, ...]:
        """The key's options for a command that a person runs."""
        pairs = (("--key-file", self.key_file), ("--key-command", self.key_command))
        return tuple(word for option, value in pairs if value is not None for word in (option, value))


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """Archive, and have deleted, the segments of an open store that end at `before` (physical offset) or earlier.

    `before` 0: see whether the archive can be opened.
    """

    config: StoreConfig
    access: ArchiveAccess
    before: int
