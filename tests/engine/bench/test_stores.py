"""Stores that were measured are taken away, and the log that they shared stays."""

from __future__ import annotations

from pathlib import Path

from engine.bench import stores


def test_a_store_of_many_files_waits_without_its_blocks(tmp_path: Path) -> None:
    """Its log is another store's, too: that one keeps every byte."""
    log = tmp_path / "log"
    log.write_bytes(b"log")
    retired = tmp_path / "retired"
    for many in (3, 700, 700):
        root = tmp_path / "run"
        root.mkdir()
        (root / "log").hardlink_to(log)
        for number in range(many):
            (root / f"{number}").write_bytes(b"unit")
        stores.retire(root, retired)
        assert not root.exists()
    left = [path for path in retired.rglob("*") if path.is_file()]
    assert (len(left), sum(path.stat().st_size for path in left)) == (1400, 0)
    assert (log.read_bytes(), log.stat().st_nlink) == (b"log", 1)
    stores.retire(root, retired)  # there is none any more
    stores.remove(retired)
    assert list(tmp_path.iterdir()) == [log]
