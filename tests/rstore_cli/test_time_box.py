"""`rstore recover --time-box`: stops in time, and the next run goes on."""

from __future__ import annotations

from pathlib import Path

from tests.engine.repair.recover.test_memory import crashed
from tests.rstore_cli.conftest import Cli
from tests.support.checking import check_clean


def test_the_command(tmp_path: Path, cli: Cli) -> None:
    crashed(tmp_path)
    codes = []
    for _ in range(20):
        ran = cli("--store", tmp_path, "recover", "--yes", "--time-box", "0s")
        codes.append(ran.code)
        if ran.code == 0:
            break
        assert "time limit reached" in ran.error_line
    assert codes[-1] == 0
    assert set(codes[:-1]) == {1}
    check_clean(tmp_path)
    assert cli("--store", tmp_path, "recover", "--dry-run", "--time-box", "5s").code == 2
