"""The keys of a repository: one main key, from it those that name and encrypt objects, and the slots that hold it.

An encrypted repository has its main key in `keys/`, encrypted once for each secret that opens it (a slot): a secret can
be added, and another removed, without writing a piece anew. A repository that is not encrypted has it in the open: it
names objects then, and shows damage, but no forger is kept out.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import FormatError, InvalidArgument, NotFound, NotInstalled, Refused, WrongKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.backup.objects.objects import Objects

KEY_SIZE = 32
SLOTS = "keys"
_SALT = 16
_NONCE = 12
_COST, _BLOCK, _LANES = 1 << 15, 8, 1
_MOST_COST = 1 << 20
_FEWEST = 8
"""Bytes of a secret: fewer are guessed."""
_LARGEST_SLOT = 4096


@dataclass(frozen=True, slots=True)
class Slot:
    """One secret's: its id, and when it was made (ISO 8601) and by whom."""

    slot_id: str
    created: str
    by: str


def demand_secret(secret: bytes) -> bytes:
    """A secret without the line end that editors add. Raises InvalidArgument for one that is too short."""
    secret = secret.rstrip(b"\r\n")
    if len(secret) < _FEWEST:
        raise InvalidArgument(
            f"the key has {len(secret)} bytes, fewer than {_FEWEST}", hint="make one: openssl rand -base64 32"
        )
    return secret


def new_main_key() -> bytes:
    """A main key."""
    return os.urandom(KEY_SIZE)


def derived(main_key: bytes, purpose: str) -> bytes:
    """The key for one purpose: HKDF-SHA256 of the main key."""
    hashes, hkdf = _hkdf()
    return bytes(hkdf(hashes.SHA256(), KEY_SIZE, None, f"rstore backup: {purpose}".encode()).derive(main_key))


def add_slot(objects: Objects, repository_id: str, main_key: bytes, secret: bytes, created: str, by: str) -> Slot:
    """Let a further secret open the repository. Raises StorageError."""
    _hkdf()
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce, slot_id = os.urandom(_SALT), os.urandom(_NONCE), os.urandom(4).hex()
    held = AESGCM(_stretched(secret, salt, _COST)).encrypt(nonce, main_key, slot_id.encode())
    slot = {
        "repository": repository_id, "created": created, "by": by,
        "kdf": "scrypt", "n": _COST, "r": _BLOCK, "p": _LANES,
        "salt": salt.hex(), "nonce": nonce.hex(), "key": held.hex(),
    }  # fmt: skip
    objects.put(f"{SLOTS}/{slot_id}", json.dumps(slot, indent=1).encode())
    return Slot(slot_id, created, by)


def slots(objects: Objects, repository_id: str) -> list[Slot]:
    """The slots, oldest first. Raises FormatError, StorageError."""
    read = _slots(objects, repository_id)
    return sorted((Slot(slot_id, s["created"], s["by"]) for slot_id, s in read), key=lambda slot: slot.created)


def open_with(objects: Objects, repository_id: str, secret: bytes) -> tuple[bytes, str]:
    """The main key that a secret opens, and the id of its slot.

    Raises:
        WrongKey: it opens none, or there is none. FormatError, StorageError.
    """
    _hkdf()
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    tried = 0
    for slot_id, slot in _slots(objects, repository_id):
        tried += 1
        stretched = _stretched(secret, bytes.fromhex(slot["salt"]), slot["n"])
        try:
            key = AESGCM(stretched).decrypt(bytes.fromhex(slot["nonce"]), bytes.fromhex(slot["key"]), slot_id.encode())
        except (InvalidTag, ValueError):
            continue
        return key, slot_id
    if not tried:
        raise WrongKey(
            "the repository has no key left that a secret could open",
            path=f"{objects.where}/{SLOTS}",
            hint="bring the directory keys/ back from a copy of the repository",
        )
    raise WrongKey(
        "this key opens none of the repository's slots", path=f"{objects.where}/{SLOTS}", hint="give the right one"
    )


def remove_slot(objects: Objects, repository_id: str, slot_id: str, own: str) -> None:
    """Let a secret open the repository no more. Raises NotFound; Refused for the one that it was opened with."""
    known = {slot.slot_id for slot in slots(objects, repository_id)}
    if slot_id not in known:
        raise NotFound(f"no key {slot_id}", hint="rstore backup key list")
    if slot_id == own:
        raise Refused("the repository was opened with this key", hint="open it with another key to remove this one")
    objects.delete([f"{SLOTS}/{slot_id}"])


def _slots(objects: Objects, repository_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Those of this repository: a `backup init` that was killed leaves one of a repository that was never made."""
    for one in objects.list(SLOTS):
        slot_id, slot = _slot(objects, one.name)
        if slot["repository"] == repository_id:
            yield slot_id, slot


def _slot(objects: Objects, name: str) -> tuple[str, dict[str, Any]]:
    where = f"{objects.where}/{name}"
    data = objects.get(name)
    try:
        if len(data) > _LARGEST_SLOT:
            raise ValueError
        slot = json.loads(data)
        sound = (
            slot["kdf"] == "scrypt"
            and type(slot["n"]) is int
            and 1 < slot["n"] <= _MOST_COST
            and (slot["r"], slot["p"]) == (_BLOCK, _LANES)
            and all(isinstance(slot[key], str) for key in ("repository", "created", "by"))
            and all(bytes.fromhex(slot[key]) for key in ("salt", "nonce", "key"))
            and not slot["n"] & (slot["n"] - 1)
        )
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise FormatError("the key's slot is damaged", path=where, hint="bring it back from a copy of the repository")
    return name.rpartition("/")[2], slot


def _stretched(secret: bytes, salt: bytes, cost: int) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt, KEY_SIZE, cost, _BLOCK, _LANES).derive(secret)


def _hkdf() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError:
        raise NotInstalled("backups need the package cryptography", hint="pip install 'rstore[backup]'") from None
    return hashes, HKDF
