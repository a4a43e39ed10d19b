"""How many threads read the log changes nothing of what recovery and reindex make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numba")

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.log import scan
from engine.repair.recover.recover import plan_recover
from engine.repair.reindex.reindex import Scope, build
from tests.conftest import Store
from tests.support import stores


@pytest.mark.leaves("checkpoint-missing", "index-orphaned", "log-missing", "not-closed")
@pytest.mark.parametrize("name", ["clean-small", "crashed-small", "lmq"])
def test_any_number_of_jobs(name: str, fixture_copy: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fixture_copy(name)
    config = StoreConfig(store_path_root_dir=store)

    def outcome(jobs: int, where: str) -> tuple[object, object, object]:
        plan = plan_recover(Disk(), config, cut=True, jobs=jobs)
        built = tmp_path / where
        built.mkdir()
        made = build(Disk(), config, str(built), Scope(), jobs=jobs)
        # An index file is named by the time at which it is made.
        files = [
            ("index" if path.startswith("index/") else path, what) for path, what in stores.contents(built).items()
        ]
        return plan.to_json(), made.to_json(), files

    plain = outcome(1, "plain")
    monkeypatch.setattr(scan, "LONG", 1 << 10)
    assert outcome(1, "one") == plain
    assert outcome(3, "three") == plain
