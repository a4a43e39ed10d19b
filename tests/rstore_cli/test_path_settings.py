"""Paths of a broker.conf that are not what they look like: a blank at the end, nothing at all."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.engine.repair.test_rules import put, settings
from tests.rstore_cli.conftest import Cli
from tests.support import stores
from tests.support.checking import check_clean

GONE = "--yes-the-log-is-gone"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose log lies on a disk of its own."""
    root = tmp_path / "store"
    put(root, 40)
    (tmp_path / "disk").mkdir()
    (root / "commitlog").rename(tmp_path / "disk" / "log")
    return root


def conf_of(store: Path, *lines: str) -> Path:
    path = store.parent / "broker.conf"
    path.write_text("".join(line + "\n" for line in (f"storePathRootDir={store}", *lines)))
    return path


@pytest.mark.parametrize("made", [False, True], ids=["not-there", "a-broker-made-it"])
@pytest.mark.parametrize("log", ["{log} ", "{log}\t", "{log} ,{log}2", "{log}2,{log} ,"], ids=repr)
def test_a_blank_at_the_end_of_the_logs_path_is_told_and_nothing_is_given_up(
    log: str, made: bool, store: Path, cli: Cli
) -> None:
    plain = store.parent / "disk" / "log"
    Path(f"{plain}2").mkdir()
    if made:
        for blank in " \t":
            Path(f"{plain}{blank}").mkdir()
    conf = conf_of(store, f"storePathCommitLog={log.format(log=plain)}")
    before = stores.snapshot(store.parent)
    for words in (["status"], ["check"], ["doctor"], ["plan-start"], ["recover", "--dry-run"]):
        ran = cli("-c", conf, *words)
        assert "take the blank out of storePathCommitLog" in ran.out + ran.err, words
        assert GONE not in ran.out + ran.err, words
        assert "mkdir" not in ran.out + ran.err, words
    for words in ([], [GONE], ["--cut"], ["--bridge"]):
        ran = cli("-c", conf, "recover", *words, "--yes")
        assert ran.code == 4, words
        assert "storePathCommitLog has a blank at an end" in ran.err
        assert f'"{plain}", which is there' in ran.err
        assert f"take the blank out of storePathCommitLog in {conf}" in ran.err
    assert stores.snapshot(store.parent) == before
    conf_of(store, f"storePathCommitLog={plain}")
    assert cli("-c", conf, "recover", "--yes").code == 0
    check_clean(store, settings(store).with_changes(store_path_commit_log=str(plain)))


def test_a_blank_at_the_end_of_the_stores_path_is_told(tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    put(root, 4)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={root} \n")
    for words in (["status"], ["recover", "--yes"], ["doctor"]):
        ran = cli("-c", conf, *words)
        assert ran.code != 0
        assert f"take the blank out of storePathRootDir in {conf}" in ran.out + ran.err, words
        assert "rstore init" not in ran.out + ran.err
    assert not Path(f"{root} ").exists()
    check_clean(root, settings(root))


@pytest.mark.parametrize("key", ["storePathRootDir", "storePathCommitLog"])
@pytest.mark.parametrize("text", ["{key}=", "{key}", "{key} =   ", "{key}=/tmp\n{key}="], ids=repr)
def test_an_empty_path_is_refused_with_its_key_and_file(
    key: str, text: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4.9.8 has its queues in /consumequeue, or its log in /: not in the directory that it was started in."""
    root = tmp_path / "store"
    put(root, 4)
    monkeypatch.chdir(root)
    conf = tmp_path / "broker.conf"
    conf.write_text(text.format(key=key) + "\n")
    for words in (["status"], ["--store", root, "recover", "--yes"], ["serve"]):
        ran = cli("-c", conf, *words)
        assert ran.code == 2
        assert f"{key} is empty" in ran.error_line
        assert str(conf) in ran.error_line
    ran = cli("doctor", "--conf", conf)
    assert f"{key} is empty" in ran.out
    again = shlex.split(ran.out.splitlines()[-1].removeprefix("Next: "))
    assert again is not None
    check_clean(root, settings(root))


@pytest.mark.parametrize("text", ["storePathCommitLog=,", "storePathCommitLog= , ", "storePathRootDir=/a\\u0000b"])
def test_a_path_that_is_none_is_refused(text: str, tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    put(root, 4)
    conf = tmp_path / "broker.conf"
    conf.write_text(text + "\n")
    for words in (["status"], ["recover", "--yes"]):
        ran = cli("-c", conf, "--store", root, *words)
        assert ran.code == 2
        assert str(conf) in ran.error_line
        assert "a fault of rstore" not in ran.err
    check_clean(root, settings(root))
