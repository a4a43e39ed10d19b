"""What is no regular file is never opened as one, never waited for, and named."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.errors import NotAFile, StorageError
from engine.files import disk as disks
from engine.files.disk import Disk
from engine.files.entry import FileKind
from tests.support.in_time import in_time

LIMIT = 20


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    with in_time(LIMIT):
        yield


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(path.parent)  # such a name is 108 bytes long at most
        try:
            listening.bind(path.name)
        finally:
            os.chdir(before)


KINDS: dict[FileKind, Callable[[Path], None]] = {
    FileKind.DIRECTORY: Path.mkdir,
    FileKind.FIFO: os.mkfifo,
    FileKind.SOCKET: make_socket,
    FileKind.DEVICE: lambda path: path.symlink_to("/dev/zero"),
    FileKind.ABSENT: lambda path: path.symlink_to("not/mounted"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_seen(kind: FileKind, tmp_path: Path) -> None:
    path = tmp_path / "it"
    KINDS[kind](path)
    (entry,) = Disk().scandir(str(tmp_path))
    assert entry == Disk().look(str(path))
    assert (entry.kind, entry.is_file, entry.is_directory) == (kind, False, kind is FileKind.DIRECTORY)
    assert entry.target == ("not/mounted" if kind is FileKind.ABSENT else "")


@pytest.mark.parametrize("then", ["a file", "a link", "nothing"])
def test_what_comes_into_being_while_it_is_looked_for(
    then: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A broker makes its checkpoint between the two questions: is there a file, is it a link whose target is not."""
    path = tmp_path / "checkpoint"
    read_link = os.readlink

    def late(asked: str) -> str:
        if then == "a file":
            path.write_bytes(b"it")
        elif then == "a link":
            path.symlink_to("not/mounted")
        return read_link(asked)

    monkeypatch.setattr(os, "readlink", late)
    entry = Disk().look(str(path))
    monkeypatch.undo()
    kinds = {"a file": FileKind.FILE, "a link": FileKind.ABSENT, "nothing": None}
    assert (entry and entry.kind) is kinds[then]
    assert Disk().link_of(str(path)) == ("not/mounted" if then == "a link" else "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["read", "write", "create", "read_file", "write_file", "segment", "copy"])
def test_it_is_not_opened(kind: FileKind, how: str, tmp_path: Path) -> None:
    path = tmp_path / "it"
    KINDS[kind](path)
    before = os.lstat(path)
    disk, name = Disk(), str(path)
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: disk.open_reader(name),
        "write": lambda: disk.open_raw(name, writable=True),
        "create": lambda: disk.open_raw(name, writable=True, create=True),
        "read_file": lambda: disk.read_file(name),
        "write_file": lambda: disk.write_file(name, b"data"),
        "segment": lambda: disk.open_segment(name, 4096),
        "copy": lambda: disk.copy_file(name, str(tmp_path / "copy")),
    }
    with pytest.raises(NotAFile) as raised:
        calls[how]()
    assert raised.value.path == name
    assert raised.value.hint
    assert kind.value in raised.value.message or "not/mounted" in raised.value.message
    assert (os.lstat(path).st_mode, os.lstat(path).st_ino) == (before.st_mode, before.st_ino)
    assert [one.name for one in tmp_path.iterdir()] == ["it"]


def test_a_name_through_a_file_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file/below")
    found = Disk().look(str(tmp_path / "link"))
    assert found is not None
    assert (found.kind, found.target) == (FileKind.ABSENT, "file/below")
    assert Disk().look(str(tmp_path / "file" / "below")) is None
    assert Disk().look(str(tmp_path / "none")) is None


def test_a_file_that_is_read_whole_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "LARGEST_WHOLE", 10)
    path = tmp_path / "topics.json"
    path.write_bytes(bytes(10))
    assert Disk().read_file(str(path)) == bytes(10)
    path.write_bytes(bytes(11))
    with pytest.raises(StorageError, match="11 bytes, more than 10"):
        Disk().read_file(str(path))
    assert Disk().read_file(str(path), 4) == bytes(4)


def test_a_link_to_a_file_stays_one_when_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "it").write_bytes(b"old")
    (tmp_path / "it").symlink_to("far/it")
    Disk().write_file_atomically(str(tmp_path / "it"), b"new")
    assert (tmp_path / "it").readlink() == Path("far/it")
    assert (tmp_path / "far" / "it").read_bytes() == b"new"
    assert [one.name for one in (tmp_path / "far").iterdir()] == ["it"]
