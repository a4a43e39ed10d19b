"""Timer messages read many at once are those that are read alone, sound or not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.store.survey import survey
from engine.inspect.store.timer_log import TimerBatch, timer_batches, timer_files
from engine.inspect.store.timer_records import Timed, TimerRecords
from engine.log.source import ClosedLog
from tests.support import newer


@pytest.mark.leaves
def test_many_at_once(tmp_path: Path) -> None:
    root = newer.unpack("timer", tmp_path)
    (segment,) = (root / "commitlog").iterdir()
    whole = segment.read_bytes()
    files = survey(Disk(), StoreConfig(store_path_root_dir=root))
    units = [
        (int(unit["physical_offset"]), int(unit["message_size"]))
        for batch in timer_batches(Disk(), files, timer_files(Disk(), files))
        if isinstance(batch, TimerBatch)
        for unit in batch.units
    ]
    sound = []
    for seed in range(40):
        chance = random.Random(seed)
        data = bytearray(whole)
        for offset, size in units if seed else ():
            if chance.random() < 0.5:
                data[offset + chance.randrange(size)] = chance.randrange(256)
        segment.write_bytes(data)
        strange = [(-5, 100), (0, 0), (units[0][0], -1), (units[0][0] + 1, units[0][1]), (1 << 62, 300), (0, 1 << 30)]
        places = units + [(offset, size + chance.choice((-1, 1, 70_000))) for offset, size in units] + strange
        chance.shuffle(places)
        with ClosedLog(Disk(), files.log) as log:
            records = TimerRecords(log, files.config)
            alone = [records.timed(*place) for place in places]
            assert records.read_many(places) == alone
        sound.append(sum(isinstance(one, Timed) for one in alone))
    assert sound[0] == len(units)
    assert 0 < min(sound) < len(units)
