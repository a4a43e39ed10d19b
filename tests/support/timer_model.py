"""What a broker of RocketMQ 5 would deliver of a store's timer messages, computed from the bytes alone.

Written from TimerMessageStore#recover, #reviseQueueOffset, #recoverAndRevise, #dequeue and #enqueue (5.3.3), without
the engine's readers of timer files: the truth that checks and repairs are held against.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

UNIT, SLOT, SLOTS = 52, 32, 1_209_600
BLANK = 0xCBD43194
WEEK_MS = 7 * 24 * 3600 * 1000


@dataclass
class Model:
    """A store's files as bytes. `hangs`: a chain that comes back to itself."""

    root: Path
    file_size: int
    now: int
    hangs: bool = False

    def log(self, offset: int, size: int) -> bytes:
        for path in (self.root / "commitlog").iterdir():
            start = int(path.name)
            if start <= offset and offset + size <= start + path.stat().st_size:
                with path.open("rb") as file:
                    file.seek(offset - start)
                    return file.read(size)
        return b""

    def message(self, offset: int, size: int) -> dict[str, str] | None:
        """The properties of the record there, as MessageDecoder reads it: None for what it can't decode."""
        data = self.log(offset, size) if 0 < size < 1 << 22 and offset >= 0 else b""
        if len(data) < 91:
            return None
        total, magic, crc, queue_id, _, queue_offset, physical = struct.unpack_from(">iiiiiqq", data)
        if magic != -626843481 or total != size:
            return None
        (length,) = struct.unpack_from(">i", data, 84)
        if not 0 <= length <= size - 91:
            return None
        body = data[88 : 88 + length]
        if zlib.crc32(body) & 0x7FFFFFFF != crc:
            return None
        at = 88 + length
        topic = data[at + 1 : at + 1 + data[at]].decode("latin-1")
        at += 1 + data[at]
        (length,) = struct.unpack_from(">h", data, at)
        text = data[at + 2 : at + 2 + length].decode("utf-8", "replace")
        named = dict(part.split("\x01", 1) for part in text.split("\x02") if "\x01" in part)
        return named | {"topic": topic, "queueOffset": str(queue_offset), "at": str(physical), "id": str(queue_id)}

    def queue(self) -> list[tuple[int, int]]:
        """Physical offset and size of each unit of the timer's queue."""
        units: list[tuple[int, int]] = []
        for path in sorted((self.root / "consumequeue" / "rmq_sys_wheel_timer" / "0").glob("*")):
            data = path.read_bytes()
            units += [struct.unpack_from(">qi", data, at) for at in range(0, len(data) - 19, 20)]
        while units and units[-1][1] == 0:
            units.pop()
        return units

    def delivers(self) -> Counter[str]:
        """How often each message is delivered from now on, by its KEYS."""
        files = {int(path.name): path.read_bytes() for path in sorted((self.root / "timerlog").glob("*"))}
        files = {start: data for start, data in files.items() if data}
        raw = self.root / "config" / "timercheck"
        head = (raw.read_bytes() if raw.exists() else b"")[:56].ljust(56, b"\0")
        read_time, flushed, taken, master = struct.unpack_from(">qqqq", head)
        path = self.root / "timerwheel"
        wheel = bytearray(path.read_bytes() if path.exists() else b"").ljust(SLOTS * SLOT, b"\0")
        starts = sorted(files)
        begin = max(0, flushed - self.file_size) if starts else 0
        index = max((i for i, start in enumerate(starts) if start <= begin), default=0)
        end = self._revise(wheel, files, starts, index, check=True)
        units = self.queue()
        place = self._unit(files, end - UNIT, end)
        revised = -1
        if place is not None and end:
            _, _, _, _, _, physical, size, _, _ = place
            named = self.message(physical, size)
            if named is not None:
                revised = int(named["queueOffset"])
        resumed = min(taken if revised < 0 else revised + 1, master, len(units))
        read_time = max(read_time, self.now - WEEK_MS + 60_000)
        least = min(
            (first for due, first, last in self._slots(wheel) if due >= read_time // 1000 and last > end),
            default=end,
        )
        if least < end:
            index = max((i for i, start in enumerate(starts) if start <= least), default=0)
            self._revise(wheel, files, starts, index, check=False)
        sent: Counter[str] = Counter()
        for due, _, last in self._slots(wheel):
            if due * 1000 < read_time // 1000 * 1000:
                continue
            sent += self._slot(files, last, end)
        for physical, size in units[resumed:]:
            named = self.message(physical, size)
            if named is not None and "TIMER_DEL_UNIQKEY" not in named:
                sent[named.get("KEYS", "?")] += 1
        return sent

    def _slots(self, wheel: bytearray) -> list[tuple[int, int, int]]:
        found = []
        used = np.frombuffer(wheel, np.int64).reshape(SLOTS, 4).any(axis=1)
        for number in np.flatnonzero(used).tolist():
            due, first, last = struct.unpack_from(">qqq", wheel, number * SLOT)
            if due >= 0 and due % SLOTS == number:
                found.append((due, first, last))
        return found

    def _unit(self, files: dict[int, bytes], at: int, end: int) -> tuple[int, ...] | None:
        start = at // self.file_size * self.file_size
        data = files.get(start)
        if at < 0 or data is None or at + UNIT > end or at - start + UNIT > len(data):
            return None
        return struct.unpack_from(">iqIqiqiiq", data, at - start)

    def _revise(self, wheel: bytearray, files: dict[int, bytes], starts: list[int], index: int, *, check: bool) -> int:
        end = starts[index] if starts else 0
        for start in starts[index:]:
            data, position = files[start], 0
            stopped = False
            while position < len(data):
                if position + 16 > len(data):
                    stopped = True
                    break
                size, _, magic = struct.unpack_from(">iqI", data, position)
                if magic == BLANK:
                    break
                if size != UNIT or magic > 15:
                    if check:
                        stopped = True
                        break
                elif position + UNIT <= len(data):
                    written, delay = struct.unpack_from(">qi", data, position + 16)
                    due = (written + delay) // 1000
                    at = due % SLOTS * SLOT
                    if struct.unpack_from(">q", wheel, at)[0] != due or wheel[at : at + 24] == bytes(24):
                        struct.pack_into(">qq", wheel, at, due, start + position)
                    struct.pack_into(">q", wheel, at + 16, start + position)
                position += UNIT
            end = start + position
            if stopped:
                break
        return end

    def _slot(self, files: dict[int, bytes], last: int, end: int) -> Counter[str]:
        sent: Counter[str] = Counter()
        met: set[int] = set()
        deletes, normal = set(), []
        at = last
        while at != -1:
            if at in met:
                self.hangs = True
                break
            met.add(at)
            unit = self._unit(files, at, end)
            if unit is None:
                break
            _, previous, magic, _, _, physical, size, _, _ = unit
            named = self.message(physical, size)
            if named is not None and magic & 4 and not magic & 2:
                deletes.add(named.get("TIMER_DEL_UNIQKEY"))
            elif named is not None:
                normal.append(named)
            at = previous
        for named in normal:
            key, topic = named.get("UNIQ_KEY"), named.get("REAL_TOPIC")
            if key not in deletes and f"{topic}+{key}" not in deletes:
                sent[named.get("KEYS", "?") if topic else "none"] += 1
        return sent
