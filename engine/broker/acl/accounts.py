"""What a file of the ACL says: accounts, their rights, addresses that may do everything.

The file is YAML, read with its lines, so that an error says where; and kept as read, so that a change by mqadmin leaves
comments and order alone. Sources: PlainPermissionManager#load, #buildPlainAccessResource, Permission.
"""

from __future__ import annotations

import io
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.broker.acl.addresses import NOBODY, AddressPattern, BadPattern
from engine.broker.acl.addresses import parse as parse_pattern
from engine.broker.acl.perms import Perm, retry_topic
from engine.broker.tables.config_file import DataVersion
from engine.broker.tables.topics import DLQ, RETRY
from engine.dataclass import dataclass
from engine.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WHITE, ACCOUNTS, VERSION = "globalWhiteRemoteAddresses", "accounts", "dataVersion"
KEY_LONGER_THAN = 6
_WORDS = {"true", "yes", "on"}


_PERMS = {
    "DENY": Perm.DENY,
    "PUB": Perm.PUB,
    "SUB": Perm.SUB,
    "PUB|SUB": Perm.PUB | Perm.SUB,
    "SUB|PUB": Perm.PUB | Perm.SUB,
}


@dataclass(frozen=True, slots=True)
class Account:
    """One account. `rights`: by topic; a group's stand under its retry topic."""

    access_key: str
    secret_key: bytes = field(repr=False)
    white: AddressPattern = NOBODY
    admin: bool = False
    default_topic: Perm = Perm.DENY
    default_group: Perm = Perm.DENY
    rights: Mapping[str, Perm] = field(default_factory=dict)

    def may(self, name: str, needed: Perm, *, strict: bool) -> bool:
        """Whether it has a right on a topic, or on a group by its retry topic. `strict`: dead letters are their
        group's. Source: PlainPermissionManager#checkPerm."""
        default = self.default_group if name.startswith(RETRY) else self.default_topic
        owned = self.rights.get(name, default)
        if owned & Perm.DENY or not owned & needed:
            return False
        if strict and name.startswith(DLQ) and name not in self.rights and not self.admin:
            return self.may(retry_topic(name.removeprefix(DLQ)), Perm.SUB, strict=strict)
        return True


@dataclass(frozen=True, slots=True)
class AclFile:
    """What one file says. `warnings`: sentences about what counts for nothing."""

    path: str
    document: Any
    accounts: tuple[Account, ...]
    white: tuple[AddressPattern, ...]
    version: DataVersion
    warnings: tuple[str, ...]


def read(text: str, path: str, now_ms: int) -> AclFile:
    """The file at `path`, whose text is given.

    Raises:
        InvalidArgument: it is no YAML, or says what makes no sense; with the line.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        document = YAML().load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f"line {mark.line + 1}: "
        raise InvalidArgument(f"{line}not YAML: {error.problem or error.context}", path=path) from None
    except (YAMLError, ValueError) as error:
        raise InvalidArgument(f"not YAML: {' '.join(str(error).split())}", path=path) from None
    return _Reader(path, now_ms).file(document)


def write(document: Any) -> str:
    """The text of a document that was read, and changed since."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def perm_of(word: str) -> Perm | None:
    """The right that a word names, None for no such word."""
    return _PERMS.get(word.strip())


class _Reader:
    def __init__(self, path: str, now_ms: int) -> None:
        self._path = path
        self._now_ms = now_ms
        self._warnings: list[str] = []

    def file(self, document: Any) -> AclFile:
        if document is None:
            document = {}
        if not isinstance(document, dict):
            raise self._wrong(None, "expected a mapping: accounts, globalWhiteRemoteAddresses")
        white = tuple(self._pattern(line, one) for line, one in self._items(document, WHITE))
        accounts = tuple(self._account(line, one) for line, one in self._items(document, ACCOUNTS))
        version = DataVersion(self._now_ms)
        for line, one in list(self._items(document, VERSION))[:1]:
            try:
                version = DataVersion(int(one["timestamp"]), int(one["counter"]))
            except (KeyError, TypeError, ValueError):
                raise self._wrong(line, f"{VERSION}: counter and timestamp must be numbers") from None
        return AclFile(self._path, document, accounts, white, version, tuple(self._warnings))

    def _account(self, line: int, entry: Any) -> Account:
        if not isinstance(entry, dict):
            raise self._wrong(line, "an account must be a mapping: accessKey, secretKey …")
        access, secret = _text(entry.get("accessKey")), _text(entry.get("secretKey"))
        if len(access) <= KEY_LONGER_THAN or len(secret) <= KEY_LONGER_THAN:
            raise self._wrong(line, f"the accessKey {access!r} and its secretKey must be longer than {KEY_LONGER_THAN}")
        rights: dict[str, Perm] = {}
        for name, before in (("groupPerms", RETRY), ("topicPerms", "")):
            for at, one in self._items(entry, name):
                what, perm = split_right(_text(one)) or (None, "")
                if what is None:
                    raise self._wrong(at, f"{name}: {_text(one)!r} is not of the form name=PUB|SUB")
                rights[before + what] = self._perm(at, perm)
        return Account(
            access,
            secret.encode(),
            self._pattern(line, entry.get("whiteRemoteAddress")),
            _text(entry.get("admin")).lower() in _WORDS,
            self._perm(line, _text(entry.get("defaultTopicPerm"))),
            self._perm(line, _text(entry.get("defaultGroupPerm"))),
            rights,
        )

    def _perm(self, line: int, word: str) -> Perm:
        perm = perm_of(word)
        if perm is None:
            if word:
                self._warnings.append(f"line {line}: {word!r} is not a permission; DENY applies")
            return Perm.DENY
        return perm

    def _pattern(self, line: int, text: Any) -> AddressPattern:
        try:
            return parse_pattern(_text(text))
        except BadPattern as error:
            raise self._wrong(line, str(error)) from None

    def _items(self, mapping: dict[str, Any], name: str) -> Iterator[tuple[int, Any]]:
        """What the list of that name holds, each with its line, counted from 1."""
        entries = mapping.get(name)
        if entries is None:
            return
        if not isinstance(entries, list):
            raise self._wrong(_line_of(mapping, name), f"{name}: expected a list")
        for at, one in enumerate(entries):
            yield _line_of(entries, at), one

    def _wrong(self, line: int | None, why: str) -> InvalidArgument:
        return InvalidArgument(why if line is None else f"line {line}: {why}", path=self._path)


def split_right(text: str) -> tuple[str, str] | None:
    """name=RIGHTS as the two; None where it is something else. Source: Permission#parseResourcePerms."""
    parts = [part.strip() for part in text.split("=") if part]
    return (parts[0], parts[1]) if len(parts) == 2 else None


def _text(value: Any) -> str:
    """A scalar as fastjson makes a string of it: keys may be numbers in YAML."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip()


def _line_of(holder: Any, item: str | int) -> int:
    where = getattr(holder, "lc", None)
    if where is None:
        return 1
    line, _ = where.key(item) if isinstance(item, str) else where.item(item)
    return int(line) + 1
