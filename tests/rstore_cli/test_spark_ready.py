"""The versions of what jobs need are looked at first, and doctor and the jobs say the same of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rstore_cli.conftest import process

Store = Callable[[str], Path]
OLD = "pyspark 3.5.1 is too old: 4.2 or newer is needed"


@pytest.fixture
def old_pyspark(tmp_path: Path) -> dict[str, str]:
    """An environment in which an import finds a pyspark of its own before the one that pip installed."""
    package = tmp_path / "spark" / "python" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from pyspark.version import __version__\n")
    (package / "version.py").write_text('__version__: str = "3.5.1"\n')
    root = Path(__file__).resolve().parents[2]
    return {"PYTHONPATH": f"{package.parent}:{root}"}


@pytest.mark.parametrize(
    "words",
    [("pipeline", "verify"), ("pipeline", "export", "--output", "never"), ("reindex", "--spark", "--dry-run")],
)
def test_an_old_pyspark(words: tuple[str, ...], old_pyspark: dict[str, str], fixture_store: Store) -> None:
    running = process(*words, "--store", fixture_store("lmq"), env=old_pyspark)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (5, "")
    assert err == f"rstore: {OLD} (pip install --upgrade 'rstore[spark]')\n"


def test_doctor_says_the_same(old_pyspark: dict[str, str], fixture_store: Store) -> None:
    running = process("doctor", "--store", fixture_store("lmq"), env=old_pyspark)
    out, _ = running.communicate(timeout=60)
    assert f"Spark jobs (rstore pipeline) can't run: {OLD} (pip install --upgrade 'rstore[spark]')" in out
