"""Paths of a broker.conf that are not what they look like: a blank at the end, a comment behind it, nothing at all."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from engine.config import of_store
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


@pytest.mark.leaves("index-orphaned", "log-missing")
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


COMMENTS = (" # the store", "\t! one, two", "  #1 # 2")


@pytest.mark.leaves("index-orphaned", "log-missing")
@pytest.mark.parametrize("comment", COMMENTS)
@pytest.mark.parametrize("made", [False, True], ids=["not-there", "a-broker-made-it"])
def test_a_comment_behind_the_logs_path_is_told_and_nothing_is_given_up(
    made: bool, comment: str, store: Path, cli: Cli
) -> None:
    plain = store.parent / "disk" / "log"
    if made:
        Path(f"{plain}{comment.partition(',')[0]}").mkdir()
    conf = conf_of(store, f"storePathCommitLog={plain}{comment}")
    before = stores.snapshot(store.parent)
    for words in (["status"], ["check"], ["doctor"], ["plan-start"], ["recover", "--dry-run"]):
        ran = cli("-c", conf, *words)
        assert f"take the comment out of storePathCommitLog in {conf}" in ran.out + ran.err, words
        assert GONE not in ran.out + ran.err, words
    for words in ([], [GONE], ["--cut"], ["--bridge"]):
        ran = cli("-c", conf, "recover", *words, "--yes")
        assert ran.code == 4, words
        assert "storePathCommitLog has a comment after the path" in ran.err
        assert f'"{plain}", which is there' in ran.err
    assert stores.snapshot(store.parent) == before
    conf_of(store, f"storePathCommitLog={plain}")
    assert cli("-c", conf, "recover", "--yes").code == 0
    check_clean(store, settings(store).with_changes(store_path_commit_log=str(plain)))


@pytest.mark.parametrize("comment", COMMENTS)
def test_a_comment_behind_the_stores_path_makes_no_second_store(comment: str, tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    put(root, 4)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={root}{comment}\n")
    before = stores.snapshot(tmp_path)
    commands = (["status"], ["check"], ["doctor"], ["plan-start"], ["recover", "--yes"], ["get", "T", "0", "0"])
    for words in (*commands, ["put", "T", "--body", "x"], ["dump", "commitlog"], ["serve"], ["init"]):
        ran = cli("-c", conf, *words)
        assert ran.code != 0, words
        assert f"take the comment out of storePathRootDir in {conf}" in ran.out + ran.err, words
        assert "make one with" not in ran.out + ran.err, words
    assert stores.snapshot(tmp_path) == before
    ran = cli("-c", conf, "init")
    assert f"then run rstore -c {conf} status: the store exists already" in ran.err
    conf.write_text(f"storePathRootDir={root}\n")
    assert cli("-c", conf, "status").code == 0


@pytest.mark.parametrize("quoted", ['"{}"', "'{}'", '"{}" ', "' {}'"])
def test_quotes_around_the_stores_path_make_no_second_store(
    quoted: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker takes them for a part of the name, and makes a store below the directory that it is started in."""
    root = tmp_path / "store"
    put(root, 4)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={quoted.format(root)}\n")
    monkeypatch.chdir(tmp_path)
    before = stores.snapshot(tmp_path)
    for words in (["status"], ["check"], ["doctor"], ["recover", "--yes"], ["put", "T", "--body", "x"], ["init"]):
        ran = cli("-c", conf, *words)
        assert ran.code == 4, words
        assert f"take the quotes out of storePathRootDir in {conf}" in ran.err, words
        assert "make one with" not in ran.err, words
    assert stores.snapshot(tmp_path) == before
    assert f"then run rstore -c {conf} status: the store exists already" in ran.err
    conf.write_text(f"storePathRootDir={root}\n")
    assert cli("-c", conf, "status").code == 0


@pytest.mark.parametrize(
    ("path", "slip"),
    [('"store"', "quotes around it"), ("store", "no / at its beginning"), ("$HOME/store", "no / at its beginning")],
)
def test_init_says_that_a_new_store_is_below_the_directory_of_its_start(
    path: str, slip: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={path}\nmappedFileSizeCommitLog=65536\n")
    ran = cli("-c", conf, "init")
    assert ran.code == 0
    assert (
        f'note: storePathRootDir in {conf} has {slip}; a broker uses the directory "{path}", too'
        in ran.err.splitlines()
    )
    assert cli("-c", conf, "status").code == 0
    assert cli("--store", "typed", "init", "--quiet").err == ""
    check_clean(tmp_path / path, of_store(file=conf))


def test_a_store_beside_a_directory_of_half_its_name_is_itself(tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store # 1"
    assert cli("--store", root, "init", "--commitlog-file-size", "64K").code == 0
    (tmp_path / "store").mkdir()
    for words in (["status"], ["recover", "--yes"], ["put", "T", "--body", "x"], ["check"]):
        assert cli("--store", root, *words).code == 0, words


def test_init_says_that_a_new_store_has_a_comment_in_its_path(tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store # 1"
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={root}\n")
    ran = cli("-c", conf, "init")
    assert ran.code == 0
    told = f'note: storePathRootDir in {conf} has a comment after the path; a broker uses the directory "{root}", too'
    assert told in ran.err.splitlines()
    assert cli("-c", conf, "status").code == 0


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
        assert "a bug in rstore" not in ran.err
    ran = cli("doctor", "--conf", conf)
    assert f"{conf}: {text.partition('=')[0]}" in ran.out


@pytest.mark.parametrize("made", [False, True], ids=["not-there", "a-broker-made-it"])
@pytest.mark.parametrize("key", ["storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths"])
def test_init_makes_no_second_store_beside_the_one_that_is_meant(
    key: str, made: bool, tmp_path: Path, cli: Cli
) -> None:
    root = tmp_path / "store"
    put(root, 4)
    conf = tmp_path / "broker.conf"
    path = root if key == "storePathRootDir" else root / "commitlog"
    other = "" if key == "storePathRootDir" else f"storePathRootDir={tmp_path / 'new'}\n"
    more = f",{tmp_path / 'old'}" if key == "readOnlyCommitLogStorePaths" else ""  # a broker trims the whole line
    conf.write_text(f"{other}{key}={path} {more}\n")
    if made:
        Path(f"{path} ").mkdir()
    before = stores.snapshot(tmp_path)
    for words in ([], ["--json"], ["--quiet"]):
        ran = cli("-c", conf, "init", *words)
        assert ran.code == 4
        assert f'{key} has a blank at an end: "{path} " is not the directory "{path}"' in ran.err
        assert f"take the blank out of {key} in {conf}" in ran.err
        assert ("then run this again" in ran.err) == (key != "storePathRootDir")
    assert stores.snapshot(tmp_path) == before
    if key == "storePathRootDir":  # init would be refused again: it says what is of use
        assert f"then run rstore -c {conf} status: the store exists already" in ran.err
        conf.write_text(f"{key}={path}\n")
        assert cli("-c", conf, "status").code == 0


def test_init_beside_an_empty_directory_that_is_meant(tmp_path: Path, cli: Cli) -> None:
    """The disk's mount point is there, and nothing on it yet: without the blank init goes on."""
    root = tmp_path / "store"
    root.mkdir()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={root} \n")
    ran = cli("-c", conf, "init")
    assert ran.code == 4
    assert f"take the blank out of storePathRootDir in {conf}, then run this again" in ran.err
    conf.write_text(f"storePathRootDir={root}\n")
    assert cli("-c", conf, "init").code == 0
    assert not Path(f"{root} ").exists()


@pytest.mark.parametrize("command", ["init", "status"])
def test_a_blank_that_was_typed_is_no_matter_of_the_settings(command: str, tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    put(root, 4)
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=48\n")
    ran = cli("--store", f"{root} ", "-c", conf, command)
    assert ran.code == 4
    assert f'the store\'s path has a blank at an end: "{root} " is not the directory "{root}"' in ran.error_line
    assert f"name the store without the blank: {root}" in ran.error_line
    assert str(conf) not in ran.error_line.replace(f"-c {conf}", "")
    assert not Path(f"{root} ").exists()


@pytest.mark.leaves("log-missing")
def test_init_says_that_a_new_store_has_a_blank_in_its_path_and_what_comes_next_works(tmp_path: Path, cli: Cli) -> None:
    root, log = Path(f"{tmp_path / 'store'} "), Path(f"{tmp_path / 'log'}\t")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={root}\nstorePathCommitLog={log}\nmappedFileSizeCommitLog=65536\n")
    ran = cli("-c", conf, "init")
    assert ran.code == 0
    for key, path in (("storePathRootDir", root), ("storePathCommitLog", log)):
        told = f'note: {key} in {conf} has a blank at an end; a broker uses the directory "{path}", too'
        assert told in ran.err.splitlines()
    next_words = shlex.split(ran.out.splitlines()[-1].removeprefix("Next: rstore "))
    assert cli(*next_words).code == 0
    assert list(log.iterdir())
    assert cli("--store", f"{tmp_path / 'typed'} ", "init", "--quiet").err == ""
    check_clean(root, of_store(file=conf))


def test_the_next_command_of_init_is_quoted_for_a_shell(tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "my $store"
    ran = cli("--store", root, "init", "--commitlog-file-size", "64K")
    assert "note" not in ran.err
    next_words = shlex.split(ran.out.splitlines()[-1].removeprefix("Next: rstore "))
    assert next_words == ["--store", str(root), "put", "TOPIC", "--body", "hello"]
    assert cli(*next_words).code == 0
