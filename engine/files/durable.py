"""What a power cut leaves: a model of which bytes and names the disk is sure to hold.

Theory: a *node* is a file or directory, whatever its names. A file's durable image is what its pages held
when they were last synced; any 4 KiB page that differs from it now may or may not have reached the disk, in
any order (512-byte sectors of it, where torn pages are asked for). A directory's durable names are those at
its last sync; each creation, removal or rename since then may or may not have reached the disk, a rename
within a directory as a whole. A file's length behaves like a page.

So the model is stricter than any real file system: what survives it survives those. What it leaves out:
versions between the durable one and the newest (a page written twice since its sync).

Invariants: whatever was synced before a crash is in every crash copy, unless it was overwritten later; each
sector of a copy holds the durable or the newest bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from random import Random
from typing import Literal

from engine.dataclass import dataclass

PAGE = 4096
SECTOR = 512
ZEROS = bytes(PAGE)

Lose = Literal["random", "all", "none"]
"""Of what is not durable: each piece by chance, all of it, or none."""


@dataclass(slots=True, eq=False)
class Node:
    """A file (durable pages by number, zeros left out; durable length in bytes) or a directory (names)."""

    is_dir: bool
    pages: dict[int, bytes] = field(default_factory=dict)
    size: int = 0
    kept: bytes | None = None
    durable_names: dict[str, Node] = field(default_factory=dict)
    names: dict[str, Node] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class NameChange:
    """A change of names that is not durable yet: (directory, name, new node or None), which go together."""

    parts: list[tuple[Node, str, Node | None]]


class DurableImage:
    """The model for one directory tree. Not thread-safe: FaultyDisk serializes.

    Args:
        root: the directory; all that is in it now counts as durable.
    """

    def __init__(self, root: str) -> None:
        self.root_path = Path(root)
        self._root = self._scan(self.root_path)
        self._changes: list[NameChange] = []

    # --- what happens -----------------------------------------------------------------------------------------------

    def add(self, path: str, *, is_dir: bool) -> None:
        """A name was made for an empty file or directory."""
        parent = self._find(Path(path).parent)
        name = Path(path).name
        if parent is not None and name not in parent.names:
            node = Node(is_dir)
            parent.names[name] = node
            self._changes.append(NameChange([(parent, name, node)]))

    def adopt(self, path: str) -> None:
        """Take what somebody else put there for durable, if it is not known yet."""
        parent = self._find(Path(path).parent)
        if parent is not None and Path(path).name not in parent.names and Path(path).exists():
            node = self._scan(Path(path))
            parent.names[Path(path).name] = parent.durable_names[Path(path).name] = node

    def keep(self, path: str) -> None:
        """A name is about to go: remember the bytes, its removal may not reach the disk."""
        node = self._find(Path(path))
        if node is not None and not node.is_dir and Path(path).is_file():
            node.kept = Path(path).read_bytes()

    def remove(self, path: str) -> None:
        """A name went, unless it is still there (a directory that is not empty)."""
        parent = self._find(Path(path).parent)
        if parent is not None and not Path(path).exists() and parent.names.pop(Path(path).name, None) is not None:
            self._changes.append(NameChange([(parent, Path(path).name, None)]))

    def rename(self, source: str, target: str) -> None:
        """A name was changed, over what had the new one."""
        old, new = self._find(Path(source).parent), self._find(Path(target).parent)
        node = None if old is None else old.names.pop(Path(source).name, None)
        parts: list[tuple[Node, str, Node | None]] = []
        if old is not None and node is not None:
            parts.append((old, Path(source).name, None))
        if new is not None:
            node = node or self._scan(Path(target))
            new.names[Path(target).name] = node
            parts.append((new, Path(target).name, node))
        self._changes.append(NameChange(parts))

    def sync_file(self, path: str, start: int, end: int) -> Callable[[], None]:
        """A sync of bytes [start, end) begins: what is there now is durable when the result is called."""
        node = self._find(Path(path))
        if node is None or node.is_dir:
            return lambda: None
        place = Path(path)
        size = place.stat().st_size
        first, last = start // PAGE, -(-end // PAGE)
        with place.open("rb") as file:
            file.seek(first * PAGE)
            data = file.read(max(0, last - first) * PAGE)

        def done() -> None:
            node.size = size
            for number in range(first, last):
                _set_page(node, number, data[(number - first) * PAGE : (number - first + 1) * PAGE])

        return done

    def sync_names(self, path: str) -> Callable[[], None]:
        """A sync of a directory begins: its names of now are durable when the result is called."""
        node = self._find(Path(path))
        if node is None:
            return lambda: None
        names = dict(node.names)
        seen = list(self._changes)

        def done() -> None:
            node.durable_names = names
            for change in seen:
                change.parts = [part for part in change.parts if part[0] is not node]
            self._changes = [change for change in self._changes if change.parts]

        return done

    # --- the crash --------------------------------------------------------------------------------------------------

    def crash_copy(self, destination: str, rng: Random, lose: Lose, *, torn: bool) -> None:
        """Write into the new directory `destination` what a power cut now could leave."""

        def lost() -> bool:
            return lose == "all" or (lose == "random" and rng.random() < 0.5)

        after: dict[int, dict[str, Node]] = {}
        for change in self._changes:
            if not lost():
                for directory, name, node in change.parts:
                    names = after.setdefault(id(directory), dict(directory.durable_names))
                    if node is None:
                        names.pop(name, None)
                    else:
                        names[name] = node
        where: dict[int, Path] = {}
        self._walk(self._root, self.root_path, where)
        _Writer(after, where, lost, SECTOR if torn else PAGE).write(self._root, Path(destination))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _scan(self, place: Path) -> Node:
        if place.is_dir():
            node = Node(is_dir=True)
            for child in sorted(place.iterdir()):
                if child.exists():
                    node.names[child.name] = self._scan(child)
            node.durable_names = dict(node.names)
            return node
        node = Node(is_dir=False)
        data = place.read_bytes()
        node.size = len(data)
        for start in range(0, len(data), PAGE):
            _set_page(node, start // PAGE, data[start : start + PAGE])
        return node

    def _find(self, place: Path) -> Node | None:
        try:
            parts = place.relative_to(self.root_path).parts
        except ValueError:
            return None
        node: Node | None = self._root
        for part in parts:
            node = None if node is None else node.names.get(part)
        return node

    def _walk(self, node: Node, place: Path, where: dict[int, Path]) -> None:
        if place.exists():
            where[id(node)] = place
        for name, child in node.names.items():
            self._walk(child, place / name, where)


def _set_page(node: Node, number: int, data: bytes) -> None:
    page = data.ljust(PAGE, b"\0")
    if page == ZEROS:
        node.pages.pop(number, None)
    else:
        node.pages[number] = page


def _mix(node: Node, newest: bytes, lost: Callable[[], bool], unit: int) -> bytes:
    """The file after the crash: per unit the durable or the newest bytes, and one length of the two."""
    size = node.size if len(newest) != node.size and lost() else len(newest)
    result = bytearray(size)
    for start in range(0, size, PAGE):
        durable = node.pages.get(start // PAGE, ZEROS)
        new = newest[start : start + PAGE].ljust(PAGE, b"\0")
        if durable != new:
            new = b"".join(
                durable[at : at + unit]
                if durable[at : at + unit] != new[at : at + unit] and lost()
                else new[at : at + unit]
                for at in range(0, PAGE, unit)
            )
        result[start : start + PAGE] = new[: size - start]
    return bytes(result)


class _Writer:
    """Writes one crash copy: names as decided, files where they are now, each unit of bytes by chance."""

    def __init__(
        self, names: dict[int, dict[str, Node]], where: dict[int, Path], lost: Callable[[], bool], unit: int
    ) -> None:
        self._names = names
        self._where = where
        self._lost = lost
        self._unit = unit

    def write(self, node: Node, target: Path) -> None:
        """Write a node, and all below it, to the new path `target`."""
        place = self._where.get(id(node))
        if not node.is_dir:
            newest = place.read_bytes() if place is not None else node.kept or b""
            target.write_bytes(_mix(node, newest, self._lost, self._unit))
            return
        target.mkdir(parents=True)  # into one that is there would mix two moments
        for name, child in sorted(self._names.get(id(node), node.durable_names).items()):
            self.write(child, target / name)
        for stranger in sorted(place.iterdir()) if place is not None else ():
            # Made past the disk since the start: none of the model's business, so it is simply there.
            if stranger.name not in node.names and stranger.name not in node.durable_names and stranger.is_file():
                (target / stranger.name).write_bytes(stranger.read_bytes())
