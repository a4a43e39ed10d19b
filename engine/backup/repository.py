"""A repository: its settings, its keys, its objects by their names. What is in them: manifest.py and BACKUP.md.

Theory. Pieces and segments are named by a keyed hash of what they hold: one that is there already need not be written
again, whoever wrote it, and one that does not have its name is damaged. A snapshot's name begins with its time and ends
with the hash of its content. Nothing is changed but what is damaged: a writer that dies leaves objects that no snapshot
names, which `prune` removes. A snapshot is written last, when all that it names is there.
"""

from __future__ import annotations

import hmac
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engine.backup.container import Container, Kind
from engine.backup.keys import KEY_SIZE, add_slot, derived, new_main_key, open_with
from engine.backup.manifest import PIECE_SIZE, SegmentPieces, Snapshot, parts_of
from engine.dataclass import dataclass
from engine.errors import (
    FormatError,
    InvalidArgument,
    NotARepository,
    NotFound,
    NotInstalled,
    Refused,
    RStoreError,
    WrongKey,
)
from engine.files.libc import Libc
from engine.log.threads import threads_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.backup.objects.objects import Objects
    from engine.files.raw_file import Bytes

SETTINGS = "rstore-repository.json"
PIECES, SEGMENTS, SNAPSHOTS = "pieces", "segments", "snapshots"
REPOSITORY_FORMAT = 1
_LARGEST_SETTINGS = 65536
_SNAPSHOT_NAME = re.compile(r"(\d{8}T\d{6}\.\d{3}Z)-([0-9a-f]{32})")
_ID = 32
_FEWEST_OF_ID = 4
_THREADS = 16
"""Snapshots that are read side by side: they are small."""
_REMOTE_THREADS = 8
_LISTS, _FOLLOWERS = 10, 64
"""How often snapshots are listed anew when one of the newest was forgotten between, and how many these are."""
_TIME = "%Y%m%dT%H%M%S"


@dataclass(frozen=True, slots=True)
class SnapshotName:
    """A snapshot as its name tells it: its id, and when it was finished (ms since 1970)."""

    snapshot_id: str
    time_ms: int
    name: str

    @property
    def short(self) -> str:
        """The id as it is shown."""
        return self.snapshot_id[:8]


@dataclass(frozen=True, slots=True)
class RepositoryFacts:
    """A repository's settings: its id, when it was made (ISO 8601), whether its objects are encrypted."""

    repository_id: str
    created: str
    is_encrypted: bool


class Repository:
    """An open repository. Thread-safe. Made by `create_repository` and `open_repository`."""

    def __init__(self, objects: Objects, facts: RepositoryFacts, main_key: bytes, slot_id: str | None) -> None:
        try:
            from blake3 import blake3
        except ImportError:
            raise NotInstalled("backups need the package blake3", hint="pip install 'rstore[backup]'") from None
        self._blake3: Callable[..., Any] = blake3
        self.objects = objects
        self.facts = facts
        self.main_key = main_key
        self.slot_id = slot_id
        self._name_key = derived(main_key, "names")
        self._container = Container(derived(main_key, "objects") if facts.is_encrypted else None)

    @property
    def where(self) -> str:
        """Its location."""
        return self.objects.where

    # --- pieces and segments ----------------------------------------------------------------------------------------

    def hash_of(self, data: Bytes) -> str:
        """The name of what holds these bytes: keyed BLAKE3, 64 hexadecimal digits."""
        return str(self._blake3(data, key=self._name_key).hexdigest())

    def put_piece(self, data: Bytes, *, prove: bool = False) -> tuple[str, int]:
        """Store a piece unless it is there: its name, and the bytes that were written. Raises StorageError.

        `prove`: one that is there is read, and written again where it is damaged.
        """
        return self._put(Kind.PIECE, PIECES, data, prove=prove)

    def get_piece(self, piece: str) -> bytes:
        """A piece, or its parts together, proved by name. Raises NotFound, FormatError, StorageError."""
        return b"".join(self._get(Kind.PIECE, PIECES, part) for part in parts_of(piece))

    def put_segment(self, segment: SegmentPieces, *, prove: bool = False) -> tuple[str, int]:
        """As `put_piece`, of what a segment is made of. Raises FormatError: nobody could read it."""
        data = segment.encode()
        SegmentPieces.decode(data, self.path(SEGMENTS))
        return self._put(Kind.SEGMENT, SEGMENTS, data, prove=prove)

    def get_segment(self, name: str) -> SegmentPieces:
        """What a segment is made of. Raises NotFound, FormatError, StorageError."""
        return SegmentPieces.decode(self._get(Kind.SEGMENT, SEGMENTS, name), self.path(place(SEGMENTS, name)))

    # --- snapshots --------------------------------------------------------------------------------------------------

    def put_snapshot(self, snapshot: Snapshot) -> SnapshotName:
        """Store a snapshot: all that it names is there. Raises StorageError; FormatError: nobody could read it."""
        data = snapshot.encode()
        Snapshot.decode(data, self.path(SNAPSHOTS))
        snapshot_id = self.hash_of(data)[:_ID]
        when = datetime.fromtimestamp(snapshot.finished / 1000, UTC)
        name = f"{when.strftime(_TIME)}.{snapshot.finished % 1000:03}Z-{snapshot_id}"
        path = f"{SNAPSHOTS}/{name}"
        self.objects.put(path, self._container.pack(Kind.SNAPSHOT, path, data))
        return SnapshotName(snapshot_id, snapshot.finished, name)

    def snapshots(self) -> list[SnapshotName]:
        """All snapshots, oldest first: their names alone are read. Raises StorageError."""
        listed = []
        for one in self.objects.list(SNAPSHOTS):
            matched = _SNAPSHOT_NAME.fullmatch(one.name.rpartition("/")[2])
            if matched is not None:
                when = datetime.strptime(matched[1], f"{_TIME}.%fZ").replace(tzinfo=UTC)
                listed.append(SnapshotName(matched[2], round(when.timestamp() * 1000), matched[0]))
        return sorted(listed, key=lambda one: one.name)

    def snapshot(self, name: SnapshotName) -> Snapshot:
        """A snapshot, proved by its id. Raises NotFound, FormatError, StorageError."""
        path = f"{SNAPSHOTS}/{name.name}"
        where = self.path(path)
        data = self._container.unpack(Kind.SNAPSHOT, path, self.objects.get(path), where)
        if self.hash_of(data)[:_ID] != name.snapshot_id:
            raise FormatError("the snapshot is damaged: its id is not its content's", path=where)
        return Snapshot.decode(data, where)

    def find(self, wanted: str, store: str | None = None) -> tuple[SnapshotName, Snapshot]:
        """The snapshot that an operator names: the beginning of its id, or `latest`, `store` being a store's name.

        Raises:
            NotFound: none, or several. InvalidArgument: the latest of which store. FormatError, StorageError.
        """
        if wanted == "latest":
            return self._latest(store)
        names = self.snapshots()
        wanted = wanted.lower()
        matching = [name for name in names if len(wanted) >= _FEWEST_OF_ID and name.snapshot_id.startswith(wanted)]
        if len(matching) != 1:
            what = "no snapshot has" if not matching else "several snapshots have"
            raise NotFound(f"{what} an id that begins with {wanted!r}", path=self.where, hint="rstore backup list")
        return matching[0], self.snapshot(matching[0])

    def each(self, names: Sequence[SnapshotName]) -> Iterator[tuple[SnapshotName, Snapshot | RStoreError]]:
        """Snapshots in the order of `names`, read side by side; in place of one that can't be read, why."""

        def read(name: SnapshotName) -> Snapshot | RStoreError:
            try:
                return self.snapshot(name)
            except RStoreError as error:
                return error

        pool = ThreadPoolExecutor(_THREADS, "rstore-snapshots")
        try:
            yield from zip(names, pool.map(read, names), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)

    def each_there(self) -> list[tuple[SnapshotName, Snapshot | RStoreError]]:
        """All snapshots as `each` gives them, oldest first: as of a moment at which none of them was just forgotten, or
        without those that were. Raises StorageError: they can't be listed.
        """
        rows: list[tuple[SnapshotName, Snapshot | RStoreError]] = []
        for _ in range(_LISTS):
            rows = list(self.each(self.snapshots()))
            gone = {name for name, one in rows if isinstance(one, NotFound) and not self.has_snapshot(name)}
            if not gone:
                return rows
        return [row for row in rows if row[0] not in gone]

    def has_snapshot(self, name: SnapshotName) -> bool:
        """Whether it is still there: a follower forgets the one before each second. Raises StorageError."""
        return self.objects.size(f"{SNAPSHOTS}/{name.name}") is not None

    def threads(self, jobs: int | None = None) -> int:
        """How many threads read or write its pieces; `jobs` None: one a core, and some more over a network."""
        return max(threads_of(jobs), _REMOTE_THREADS if "://" in self.where and jobs is None else 1)

    def _latest(self, store: str | None) -> tuple[SnapshotName, Snapshot]:
        for _ in range(_LISTS):
            names = self.snapshots()
            try:
                return self._latest_of(names, store)
            except NotFound:
                if all(map(self.has_snapshot, names[-_FOLLOWERS:])):
                    raise
        return self._latest_of(self.snapshots(), store)

    def _latest_of(self, names: list[SnapshotName], store: str | None) -> tuple[SnapshotName, Snapshot]:
        latest: tuple[SnapshotName, Snapshot] | None = None
        for name, snapshot in self.each(names[::-1]):
            if isinstance(snapshot, RStoreError):
                raise snapshot
            if store is None and latest is not None and snapshot.store != latest[1].store:
                raise InvalidArgument(
                    "the repository has snapshots of several stores",
                    path=self.where,
                    hint="name the store with --name, or a snapshot by its ID: rstore backup list",
                )
            if store is not None and snapshot.store == store:
                return name, snapshot
            if store is None and latest is None:
                latest = name, snapshot
        if latest is None:
            of = "" if store is None else f" of store {store!r}"
            raise NotFound(f"no snapshot{of}", path=self.where, hint="rstore backup list")
        return latest

    # --- inside -----------------------------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        """Where an object lies, for messages."""
        return os.path.join(self.where, name)

    def put_object(self, kind: Kind, name: str, data: Bytes) -> None:
        """Store an object under a name that its content alone does not tell. Raises StorageError."""
        self.objects.put(name, self._container.pack(kind, name, data))

    def get_object(self, kind: Kind, name: str) -> bytes:
        """What such an object holds. Raises NotFound, FormatError, StorageError."""
        return self._container.unpack(kind, name, self.objects.get(name), self.path(name))

    def _put(self, kind: Kind, below: str, data: Bytes, *, prove: bool) -> tuple[str, int]:
        name = self.hash_of(data)
        path = place(below, name)
        if self.objects.size(path) is not None and not (prove and self._is_damaged(kind, below, name)):
            return name, 0
        packed = self._container.pack(kind, path, data)
        self.objects.put(path, packed)
        return name, len(packed)

    def _is_damaged(self, kind: Kind, below: str, name: str) -> bool:
        try:
            self._get(kind, below, name)
        except FormatError:
            return True
        return False

    def _get(self, kind: Kind, below: str, name: str) -> bytes:
        path = place(below, name)
        where = self.path(path)
        data = self._container.unpack(kind, path, self.objects.get(path), where)
        if not hmac.compare_digest(self.hash_of(data), name):
            raise FormatError("the object is damaged: its name is not its content's", path=where)
        return data


def place(below: str, name: str) -> str:
    """Where an object that is named by its content lies: in one of 256 directories."""
    return f"{below}/{name[:2]}/{name}"


def create_repository(objects: Objects, secret: bytes | None, created: str, by: str) -> Repository:
    """Make a repository; `secret` opens it, None: nothing is encrypted.

    Raises:
        Refused: something is there already. StorageError.
    """
    for _ in _anything(objects):
        raise Refused("the location is not empty", path=objects.where, hint="name an empty or a new one")
    main_key, repository_id = new_main_key(), os.urandom(8).hex()
    slot_id = None if secret is None else add_slot(objects, repository_id, main_key, secret, created, by).slot_id
    settings = {
        "format": REPOSITORY_FORMAT, "id": repository_id, "created": created, "pieceSize": PIECE_SIZE,
        "encrypted": secret is not None,
    } | ({} if secret is not None else {"key": main_key.hex()})  # fmt: skip
    if not objects.put_new(SETTINGS, json.dumps(settings, indent=1).encode()):
        raise Refused("somebody else has just made this repository", path=objects.where)
    return Repository(objects, RepositoryFacts(repository_id, created, secret is not None), main_key, slot_id)


def open_repository(objects: Objects, secret: Callable[[], bytes | None]) -> Repository:
    """Open a repository; `secret` is asked where it is encrypted.

    Raises:
        NotARepository: nothing, or something else, lies there. WrongKey: no key was given, or it opens none.
        FormatError, StorageError.
    """
    settings = _settings(objects)
    facts = RepositoryFacts(settings["id"], settings["created"], settings["encrypted"])
    Libc().limit_heaps(1)  # each thread would keep what it gave back in one of its own, and a restore needs much
    if not facts.is_encrypted:
        return Repository(objects, facts, bytes.fromhex(settings["key"]), None)
    given = secret()
    if given is None:
        raise WrongKey(
            "the repository is encrypted", path=objects.where, hint="give its key: --key-file FILE, or RSTORE_REPO_KEY"
        )
    main_key, slot_id = open_with(objects, facts.repository_id, given)
    return Repository(objects, facts, main_key, slot_id)


def _settings(objects: Objects) -> dict[str, Any]:
    where = os.path.join(objects.where, SETTINGS)
    try:
        data = objects.get(SETTINGS)
    except NotFound:
        raise NotARepository(
            "no backup repository here", path=objects.where, hint="make one: rstore backup init"
        ) from None
    try:
        if len(data) > _LARGEST_SETTINGS:
            raise ValueError
        settings = json.loads(data)
        version = settings["format"]
        texts = all(isinstance(settings[key], str) for key in ("id", "created"))
        sound = texts and isinstance(settings["encrypted"], bool) and settings["pieceSize"] == PIECE_SIZE
        if sound and not settings["encrypted"]:
            sound = len(bytes.fromhex(settings["key"])) == KEY_SIZE
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NotARepository("no settings of a backup repository", path=where) from None
    if version != REPOSITORY_FORMAT or not sound:
        raise NotARepository(f"repository format {version}, or settings that this rstore doesn't read", path=where)
    return dict(settings)


def _anything(objects: Objects) -> Iterator[str]:
    """Names of what lies there, if anything does. Keys without settings are what a killed `backup init` leaves."""
    if objects.size(SETTINGS) is not None:
        yield SETTINGS
    for below in (PIECES, SEGMENTS, SNAPSHOTS):
        for one in objects.list(below):
            yield one.name
            return
