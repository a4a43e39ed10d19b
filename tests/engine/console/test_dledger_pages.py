"""Pages of a DLedger store: each answers and reads alone; what would change it is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.console.options import ConsoleOptions
from tests.engine.console.test_store_pages import named
from tests.support import dledger, stores
from tests.support.consoles import console, store_pages

pytestmark = pytest.mark.leaves("not-closed")


def test_every_page_answers_and_no_byte_is_written(tmp_path: Path) -> None:
    root = dledger.unpack("killed5", tmp_path)
    before = stores.snapshot(root)
    with console(ConsoleOptions(store=named(root))) as browser:
        for path, answer in store_pages(browser).items():
            assert answer.status == 200, (path, answer.words)
        for name in ("check", "verify-crc"):
            assert browser.run(name)["error"] is None
        for name in ("plan-start", "recover"):
            assert "a DLedger store (dledger-n0/data/)" in str(browser.run(name)["error"])
        rows = [one for one in browser.json("/store/log/records?from=48")["rows"] if one["kind"] == "message"]
        assert (rows[0]["physicalOffset"], rows[0]["queueOffset"]) == (48, 0)
        assert browser.json("/store/log/bytes?at=48")["file"].endswith(f"dledger-n0/data/{0:020}")
    assert stores.snapshot(root) == before
