"""The files of the ACL: plain_acl.yml and those in the directory acl/; read, read again when they change, and changed.

A file that is broken at the start is an error. When one breaks later, all stays as it was, and that is logged: rights
that half a file gives are nobody's wish. Sources: PlainPermissionManager, AclFileWatchService.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.broker.acl import accounts
from engine.broker.acl.accounts import ACCOUNTS, KEY_LONGER_THAN, VERSION, WHITE, Account, AclFile, perm_of, split_right
from engine.broker.tables.config_file import DataVersion
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, RStoreError

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping

    from engine.broker.acl.addresses import AddressPattern
    from engine.files.disk import Disk

_ENDINGS = (".yml", ".yaml")
_TOOLS = "tools.yml"
_DEEPEST = 8


class AclChangeFailed(Exception):
    """A change of the ACL files that failed, and why."""


@dataclass(frozen=True, slots=True)
class AclTable:
    """What all files say. `files`: in the order in which they count."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    white: Sequence[AddressPattern] = ()
    files: Mapping[str, AclFile] = field(default_factory=dict)
    home: Mapping[str, str] = field(default_factory=dict)


class AclFiles:
    """See the module. Thread-safe: who is served reads `table`, which is replaced as a whole.

    Args:
        path: of plain_acl.yml.
        directory: of further files.

    Attributes:
        table: what counts now.
    """

    def __init__(self, disk: Disk, path: str, directory: str, now_ms: Callable[[], int], log: logging.Logger) -> None:
        self._disk = disk
        self.path = path
        self._directory = directory
        self._now_ms = now_ms
        self._log = log
        self._lock = threading.RLock()
        self._seen: dict[str, tuple[int, int]] = {}
        self.table = AclTable()

    def load(self) -> None:
        """Read all files.

        Raises:
            InvalidArgument: one makes no sense, with its line; there is none at all. StorageError: one can't be read.
        """
        with self._lock:
            files = self._find()
            if not files:
                raise InvalidArgument(
                    "no ACL file: every request would be refused",
                    path=self.path,
                    hint=f"create it, or a .yml file in {self._directory}",
                )
            self.table = self._read(files)
            self._seen = files

    def look(self) -> bool:
        """Read all files again when one has changed; whether another table counts now. What is broken is logged."""
        try:
            with self._lock:
                files = self._find()
                if files == self._seen:
                    return False
                self._seen = files  # a broken file is logged once
                self.table = self._read(files)
        except RStoreError as error:
            self._log.error("ACL files not reloaded; the last accounts stay in force", extra={"why": str(error)})
            return False
        self._log.info("ACL files reloaded", extra={"accounts": len(self.table.accounts)})
        return True

    # --- changes ----------------------------------------------------------------------------------------------------

    def put_account(self, entry: Mapping[str, Any]) -> None:
        """Make or change an account: plain values by the names of the file; None: leave it.

        Raises:
            AclChangeFailed. StorageError: the file can't be written. Source: #updateAccessConfig.
        """
        access, secret = str(entry.get("accessKey") or ""), str(entry.get("secretKey") or "")
        if len(access) <= KEY_LONGER_THAN or len(secret) <= KEY_LONGER_THAN:
            raise AclChangeFailed(f"The accessKey={access} and its secretKey should be longer than {KEY_LONGER_THAN}")
        for one in (*(entry.get("topicPerms") or ()), *(entry.get("groupPerms") or ())):
            parts = split_right(one)
            if parts is None:
                raise AclChangeFailed(
                    f"Parse Resource format error for {one}.\n"
                    "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
                )
            if perm_of(parts[1]) is None:
                raise AclChangeFailed(
                    f"Parse resource permission error for {one}.\n"
                    "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
                )

        def change(document: Any) -> None:
            accounts_there = document.setdefault(ACCOUNTS, []) or []
            document[ACCOUNTS] = accounts_there
            account = next((one for one in accounts_there if str(one.get("accessKey")) == access), None)
            if account is None:
                account = {}
                accounts_there.append(account)
            account.update((name, value) for name, value in entry.items() if value is not None)

        self._change(self.table.home.get(access, self.path), change)

    def delete_account(self, access: str) -> bool:
        """Forget an account; False: there is none.

        Raises AclChangeFailed, StorageError. Source: #deleteAccessConfig.
        """
        path = self.table.home.get(access)
        if path is None:
            return False

        def change(document: Any) -> None:
            kept = document[ACCOUNTS]
            for one in [one for one in kept if str(one.get("accessKey")) == access]:
                kept.remove(one)

        self._change(path, change)
        return True

    def put_white(self, patterns: Sequence[str], path: str | None) -> bool:
        """Replace a file's addresses that may do everything; False: no file of the ACL.

        Raises AclChangeFailed, StorageError. Source: #updateGlobalWhiteAddrsConfig.
        """
        path = path or self.path
        if path != self.path and path not in self.table.files:
            return False

        def change(document: Any) -> None:
            document[WHITE] = list(patterns)

        self._change(path, change)
        return True

    def versions(self) -> dict[str, dict[str, int]]:
        """The version of each file."""
        return {path: file.version.to_json() for path, file in self.table.files.items()}

    def version(self) -> dict[str, int]:
        """The version of plain_acl.yml."""
        version = self.table.files.get(self.path)
        return (DataVersion(self._now_ms()) if version is None else version.version).to_json()

    def _change(self, path: str, change: Callable[[Any], None]) -> None:
        """Change a file as it is now, unless it would make no sense then."""
        with self._lock:
            self._rewrite(path, change)
            self.look()

    def _rewrite(self, path: str, change: Callable[[Any], None]) -> None:
        now = self._now_ms()
        try:
            text = self._text(path) if self._disk.exists(path) else "accounts: []\n"
            file = accounts.read(text, path, now)
            document = {} if file.document is None else file.document
            change(document)
            file.version.next(now)
            document[VERSION] = [file.version.to_json()]
            text = accounts.write(document)
            accounts.read(text, path, now)
        except InvalidArgument as error:
            raise AclChangeFailed(str(error)) from None
        self._disk.write_file_atomically(path, text.encode())

    # --- reading ----------------------------------------------------------------------------------------------------

    def _find(self) -> dict[str, tuple[int, int]]:
        """The files that are there, with what tells that one has changed; those of the directory come first."""
        files = dict(self._below(self._directory, _DEEPEST)) if self._disk.is_dir(self._directory) else {}
        if self._disk.exists(self.path):
            entry = self._disk.stat(self.path)
            files.setdefault(self.path, (entry.mtime_ns, entry.size))
        return files

    def _below(self, directory: str, deep: int) -> list[tuple[str, tuple[int, int]]]:
        files: list[tuple[str, tuple[int, int]]] = []
        for entry in sorted(self._disk.scandir(directory), key=lambda one: one.path):
            if entry.is_file and entry.path.endswith(_ENDINGS) and os.path.basename(entry.path) != _TOOLS:
                files.append((entry.path, (entry.mtime_ns, entry.size)))
            elif entry.is_directory and deep:
                files += self._below(entry.path, deep - 1)
        return files

    def _text(self, path: str) -> str:
        try:
            return self._disk.read_file(path).decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument("not UTF-8 text", path=path, offset=error.start) from None

    def _read(self, states: Mapping[str, tuple[int, int]]) -> AclTable:
        table: dict[str, Account] = {}
        home: dict[str, str] = {}
        files: dict[str, AclFile] = {}
        for path in states:
            file = accounts.read(self._text(path), path, self._now_ms())
            files[path] = file
            for warning in file.warnings:
                self._log.warning("ACL file warning", extra={"path": path, "why": warning})
            for account in file.accounts:
                if account.access_key in table:
                    why = f"{account.access_key} is in {home[account.access_key]}, too, which is in force"
                    self._log.warning("duplicate account", extra={"path": path, "why": why})
                    continue
                table[account.access_key] = account
                home[account.access_key] = path
        return AclTable(table, [one for file in files.values() for one in file.white], files, home)
