"""What a repository asks of the place where it lies: whole objects by name, written once, listed by prefix.

An object is whole or not there, whenever its writer dies: a directory renames a synced file, object storage has it so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.files.raw_file import Bytes

LARGEST = 64 << 20
"""Bytes of the largest object that is read: a piece has 4 MiB."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object: its name, bytes, and when it was written by the clock of the place (seconds since 1970)."""

    name: str
    size: int
    written_s: float


class Objects(Protocol):
    """A place for objects. Thread-safe. Names are relative, `/` between their parts.

    Attributes:
        where: the place, as the operator named it.
    """

    @property
    def where(self) -> str:
        """The place, as the operator named it."""
        ...

    def get(self, name: str) -> bytes:
        """An object whole. Raises NotFound where it is not there, StorageError."""
        ...

    def put(self, name: str, data: Bytes) -> None:
        """Write an object, durably; one of this name is replaced. Raises DiskFull, StorageError."""
        ...

    def put_new(self, name: str, data: Bytes) -> bool:
        """Write an object that is not there yet; False where one is. Raises DiskFull, StorageError."""
        ...

    def size(self, name: str) -> int | None:
        """Bytes of an object; None where it is not there. Raises StorageError."""
        ...

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """The objects below `prefix`, a whole part of names such as `pieces`. Raises StorageError."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; one that is not there is no error. Raises StorageError."""
        ...
