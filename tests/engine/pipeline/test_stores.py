"""Which stores are meant by what is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import NotAStore, Refused
from engine.files.disk import Disk
from engine.pipeline.stores import find_stores
from engine.repair.create import create_store
from tests.engine.opening import small


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name in ("a", "b", "zone=1"):
        create_store(Disk(), small(tmp_path / name))
    return tmp_path


def names(*places: str) -> list[tuple[str, str]]:
    return [(store.name, Path(store.root).name) for store in find_stores(places)]


def test_names_paths_globs(base: Path) -> None:
    assert names(f"{base}/a") == [("a", "a")]
    assert names(f"first={base}/a", f"{base}/b") == [("first", "a"), ("b", "b")]
    assert names(f"{base}/*") == [("a", "a"), ("b", "b"), ("zone=1", "zone=1")]


def test_a_path_with_an_equals_sign(base: Path) -> None:
    assert names(f"{base}/zone=1") == [("zone=1", "zone=1")]
    assert names(f"{base}/zone=*") == [("zone=1", "zone=1")]
    assert names(f"z={base}/zone=1") == [("z", "zone=1")]


def test_a_broker_file_is_remembered(base: Path) -> None:
    (base / "broker.conf").write_text("enableLmq=true\n")
    (store,) = find_stores([f"{base}/a"], config=base / "broker.conf")
    assert store.config.enable_lmq
    assert store.config_file == str(base / "broker.conf")
    assert find_stores([f"{base}/a"])[0].config_file is None


def test_what_is_none(base: Path) -> None:
    with pytest.raises(Refused, match="two stores are named a"):
        names(f"{base}/a", f"a={base}/b")
    with pytest.raises(NotAStore, match="no directory matches"):
        names(f"{base}/x*")
    with pytest.raises(NotAStore, match="STORE is required"):
        names()
