"""Reads one RocksDB database for the process that started it: `python rocksdb_child.py DIRECTORY`.

RocksDB is native code, and a damaged database may bring it down: then this process ends, and not the one that asked.
Requests come as JSON lines at the standard input; each answer is a JSON line, and the bytes that it announces. It ends
with its standard input, and removes the directory, which is a copy (rocksdb.py). It imports nothing of rstore.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any, BinaryIO

MOST_BYTES = 8 << 20
"""Keys and values of one answer, in bytes; the last one may be longer."""

CACHE_BYTES = 64 << 20
"""Of blocks of tables, their indexes and filters."""


class Reader:
    """An open database."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._families: dict[str, Any] = {}
        self._db: Any = None

    def answer(self, asked: dict[str, Any], into: BinaryIO) -> None:
        """Do what is asked, and write the answer."""
        parts: list[bytes] = []
        try:
            answer = getattr(self, f"do_{asked['do']}")(asked, parts)
        except Exception as error:  # noqa: BLE001 - whatever RocksDB says goes to who asked
            answer, parts = {"error": str(error) or type(error).__name__}, []
        into.write(json.dumps({**answer, "bytes": sum(map(len, parts))}).encode() + b"\n")
        for part in parts:
            into.write(part)
        into.flush()

    def do_open(self, asked: dict[str, Any], parts: list[bytes]) -> dict[str, Any]:
        """Open it; `strict`: the log that is replayed must be whole. Its column families and files are told."""
        del parts
        from rocksdict import AccessType, BlockBasedOptions, Cache, DBRecoveryMode, Options, Rdict

        tables = BlockBasedOptions()  # else the filters of all tables are in memory: two bytes a key
        tables.set_block_cache(Cache(CACHE_BYTES))
        tables.set_cache_index_and_filter_blocks(True)

        def options() -> Any:
            one = Options(raw_mode=True)
            one.create_if_missing(False)
            one.set_paranoid_checks(True)
            one.set_block_based_table_factory(tables)
            mode = DBRecoveryMode.absolute_consistency if asked["strict"] else DBRecoveryMode.point_in_time
            one.set_wal_recovery_mode(mode())
            return one

        names = Rdict.list_cf(self._directory)
        more = {name: options() for name in names if name != "default"}
        self._db = Rdict(self._directory, options=options(), column_families=more, access_type=AccessType.read_only())
        self._families = {name: self._db.get_column_family(name) for name in more}
        self._families["default"] = self._db
        return {"families": names, "tables": [one["name"].lstrip("/") for one in self._db.live_files()]}

    def do_items(self, asked: dict[str, Any], parts: list[bytes]) -> dict[str, Any]:
        """Keys from `start` on that lie before `stop`, `most` at most, with their values: lengths, then the bytes."""
        stop = None if asked["stop"] is None else bytes.fromhex(asked["stop"])
        keys: list[bytes] = []
        values: list[bytes] = []
        size, most = 0, asked["most"]
        rows = self._families[asked["family"]].iter()
        rows.seek(bytes.fromhex(asked["start"]))
        while rows.valid() and len(keys) < most and size < MOST_BYTES:
            key = rows.key()
            if stop is not None and key >= stop:
                break
            value = rows.value()
            keys.append(key)
            values.append(value)
            size += len(key) + len(value)
            rows.next()
        rows.status()
        parts += keys + values
        return {"keys": list(map(len, keys)), "values": list(map(len, values)), "full": size >= MOST_BYTES}

    def do_last(self, asked: dict[str, Any], parts: list[bytes]) -> dict[str, Any]:
        """The last key that is not after `key`, with its value."""
        rows = self._families[asked["family"]].iter()
        rows.seek_for_prev(bytes.fromhex(asked["key"]))
        valid = rows.valid()
        if valid:
            parts += [rows.key(), rows.value()]
        rows.status()
        return {"keys": [len(parts[0])] if valid else [], "values": [len(parts[1])] if valid else []}


def main() -> None:
    """Answer until the standard input ends."""
    directory = sys.argv[1]
    reader = Reader(directory)
    try:
        for line in sys.stdin.buffer:
            reader.answer(json.loads(line), sys.stdout.buffer)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
