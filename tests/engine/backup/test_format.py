"""BACKUP.md's worked example, byte by byte; objects that are not what they should be are refused."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine.backup
from engine.backup.container import Container, Kind
from engine.backup.manifest import SegmentPieces, Snapshot
from engine.backup.objects.directory import DirectoryObjects
from engine.backup.objects.place import objects_at
from engine.backup.repository import Repository, RepositoryFacts, create_repository, open_repository, place
from engine.errors import FormatError, NotARepository, Refused, RStoreError, WrongKey
from engine.files.disk import Disk
from tests.engine.backup import repositories

BACKUP = Path(engine.backup.__file__).with_name("BACKUP.md")


def test_the_worked_example(tmp_path: Path) -> None:
    objects = DirectoryObjects(Disk(), str(tmp_path))
    repository = Repository(objects, RepositoryFacts("1", "now", False), bytes(32), None)
    name, added = repository.put_piece(b"hello\n")
    path = tmp_path / place("pieces", name)
    text = BACKUP.read_text().partition("### Example")[2]
    blocks = [block.split() for block in text.split("\n\n") if block.startswith("    ")]
    assert blocks == [[place("pieces", name)], path.read_bytes().hex(" ").split()]
    assert added == path.stat().st_size == 30
    assert repository.get_piece(name) == b"hello\n"
    assert repository.put_piece(b"hello\n") == (name, 0)


@given(st.binary(max_size=5000), st.booleans())
def test_what_is_packed_is_unpacked(data: bytes, encrypted: bool) -> None:
    container = Container(bytes(range(32)) if encrypted else None)
    packed = container.pack(Kind.PIECE, "pieces/a", data)
    assert container.unpack(Kind.PIECE, "pieces/a", packed, "x") == data


@pytest.mark.parametrize("encrypted", [True, False])
def test_no_changed_byte_is_taken(tmp_path: Path, encrypted: bool) -> None:
    repository = repositories.new(tmp_path / "r", repositories.SECRET if encrypted else None)
    data = b"abc" * 500
    name, _ = repository.put_piece(data)
    path = tmp_path / "r" / place("pieces", name)
    sound = path.read_bytes()
    for at in range(len(sound)):
        for bit in (1, 0x80):
            path.write_bytes(sound[:at] + bytes([sound[at] ^ bit]) + sound[at + 1 :])
            try:
                assert repository.get_piece(name) == data
            except FormatError:
                continue
            assert not encrypted  # some bits of a header, and of zstd's, say nothing
    for length in range(len(sound)):
        path.write_bytes(sound[:length])
        with pytest.raises(FormatError):
            repository.get_piece(name)


def test_an_object_under_anothers_name(tmp_path: Path) -> None:
    repository = repositories.new(tmp_path / "r")
    one, _ = repository.put_piece(b"one" * 100)
    two, _ = repository.put_piece(b"two" * 100)
    objects = repository.objects
    objects.put(place("pieces", two), objects.get(place("pieces", one)))
    with pytest.raises(FormatError):
        repository.get_piece(two)


def test_nothing_of_what_is_stored_can_be_read_in_an_encrypted_repository(tmp_path: Path) -> None:
    repository = repositories.new(tmp_path / "r")
    repository.put_piece(b"secret words " * 3)
    assert all(b"secret" not in path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file())


def test_keys(tmp_path: Path) -> None:
    from engine.backup.keys import add_slot, remove_slot, slots

    repository = repositories.new(tmp_path / "r")
    objects = repository.objects
    with pytest.raises(WrongKey):
        open_repository(objects, lambda: b"another secret")
    with pytest.raises(WrongKey):
        open_repository(objects, lambda: None)
    name, _ = repository.put_piece(b"x" * 100)
    known = repository.facts.repository_id
    slot = add_slot(objects, known, repository.main_key, b"another secret", "later", "test")
    other = open_repository(objects, lambda: b"another secret")
    assert other.slot_id == slot.slot_id
    with pytest.raises(Refused):
        remove_slot(objects, known, slot.slot_id, other.slot_id or "")
    remove_slot(objects, known, repository.slot_id or "", other.slot_id or "")
    assert [one.slot_id for one in slots(objects, known)] == [slot.slot_id]
    with pytest.raises(WrongKey):
        open_repository(objects, lambda: repositories.SECRET)
    assert other.get_piece(name) == b"x" * 100
    add_slot(objects, "0" * 16, b"m" * 32, repositories.SECRET, "earlier", "a killed init")
    with pytest.raises(WrongKey):
        open_repository(objects, lambda: repositories.SECRET)


def test_a_secret_is_stretched_for_those_who_guess_it(tmp_path: Path) -> None:
    """A process of its own: in this one it takes no time (tests/conftest.py)."""
    (tmp_path / "key").write_bytes(repositories.SECRET)
    words = ("backup", "init", "--repo", tmp_path / "r", "--key-file", tmp_path / "key")
    subprocess.run([sys.executable, "-m", "rstore_cli.app", *words], check=True, stdout=subprocess.DEVNULL)
    (path,) = (tmp_path / "r" / "keys").iterdir()
    assert json.loads(path.read_text())["n"] == 1 << 15
    assert open_repository(objects_at(Disk(), str(tmp_path / "r")), lambda: repositories.SECRET).slot_id == path.name


@pytest.mark.parametrize(
    "settings",
    [b"", b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"format": 2}', b'{"format": 1, "id": 1}', b"x" * 100_000],
)
def test_foreign_places(tmp_path: Path, settings: bytes) -> None:
    objects = DirectoryObjects(Disk(), str(tmp_path))
    with pytest.raises(NotARepository):
        open_repository(objects, lambda: None)
    (tmp_path / "rstore-repository.json").write_bytes(settings)
    with pytest.raises(NotARepository):
        open_repository(objects, lambda: None)
    with pytest.raises(Refused):
        create_repository(objects, None, "now", "test")


def test_hostile_key_slots(tmp_path: Path) -> None:
    """A cost that would take all memory, and what is no slot at all."""
    repository = repositories.new(tmp_path / "r")
    (path,) = (tmp_path / "r" / "keys").iterdir()
    slot = json.loads(path.read_text())
    for changed in ({"n": 1 << 40}, {"n": 3}, {"n": -1}, {"salt": "xyz"}, {"kdf": "none"}, {"r": 1 << 30}):
        path.write_text(json.dumps({**slot, **changed}))
        with pytest.raises(FormatError):
            open_repository(repository.objects, lambda: repositories.SECRET)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(["store", "segments", "files", "sizes", "start", "end", "format", "skipped", "is_live"]), JSON)
def test_hostile_snapshots(field: str, value: object) -> None:
    """A field of any kind is a FormatError or a snapshot, never another error."""
    fields = json.loads(_SNAPSHOT.encode())
    fields[field] = value
    with contextlib.suppress(FormatError):
        Snapshot.decode(json.dumps(fields).encode(), "x")


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/cron.d/x",
        "/etc/passwd",
        "config/../../x",
        "",
        "a//b",
        "a\0b",
        ".",
        "abort",
        "commitlog/0",
        "config",
        "lock",
    ],
)
def test_no_file_leads_out_of_the_store(path: str) -> None:
    fields = json.loads(_SNAPSHOT.encode())
    fields["files"] = [{"path": path, "size": 0, "pieces": []}]
    with pytest.raises(FormatError):
        Snapshot.decode(json.dumps(fields).encode(), "x")


@given(st.binary(max_size=200))
def test_no_bytes_are_taken_for_json(data: bytes) -> None:
    for decode in (Snapshot.decode, SegmentPieces.decode):
        with pytest.raises(RStoreError):
            decode(data, "x")


def test_a_repository_is_its_owners(tmp_path: Path) -> None:
    repositories.new(tmp_path / "r")
    assert all(os.stat(path).st_mode & 0o077 == 0 for path in (tmp_path / "r", tmp_path / "r" / "keys"))


_SNAPSHOT = Snapshot(
    "a", "host", "me", "1", "/store", 1, 2, 0, 0, False, False, 0, 0, 0, 0, {"mappedFileSizeCommitLog": 1024}, (), ()
)
