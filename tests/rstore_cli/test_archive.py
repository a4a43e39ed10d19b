"""`expire --archive`, then `get` and `query` with it: as an operator types them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rstore_cli.conftest import Cli
from tests.support import stores

Store = Callable[[str], Path]
BACKUP_MD = Path(__file__).parents[2] / "engine" / "backup" / "BACKUP.md"
NOW = ("expire", "--force", "--reserved-hours", "0")


@pytest.fixture
def store(fixture_copy: Store) -> Path:
    return fixture_copy("clean-small")


@pytest.fixture
def repo(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository; its key is in the environment, its location is not."""
    monkeypatch.setenv("RSTORE_REPO_KEY", "a secret of a test")
    assert cli("backup", "init", "--repo", tmp_path / "repo").code == 0
    return tmp_path / "repo"


def test_from_the_plan_to_the_last_message(store: Path, repo: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    every = cli("--store", store, "get", "Orders", "0", "--count", "100000", "--json").lines
    assert len(every) == 10
    keyed = next(row for row in every if row["properties"].get("KEYS"))
    query = ("query", "Orders", keyed["properties"]["KEYS"].split()[0])
    matches = cli("--store", store, *query, "--json").lines
    scanned = cli("--store", store, "salvage", "scan", "--json").json
    before = stores.snapshot(store)
    kept = cli("--store", store, *NOW, "--archive", repo, "--yes", "--json")
    assert (kept.code, kept.json["changed"], kept.json["archived"]) == (0, False, 0)
    assert kept.json["keptBecause"].endswith("rstore backup create")
    assert stores.snapshot(store) == before

    assert cli("--store", store, "backup", "create", "--repo", repo).code == 0
    dry = cli("--store", store, *NOW, "--archive", repo, "--dry-run", "--json")
    assert dry.code == 1
    assert stores.snapshot(store) == before
    shown = cli("--store", store, *NOW, "--archive", repo, "--dry-run")
    assert "read back" in shown.out
    assert "Deleted segments stay in the archive" in shown.out
    done = cli("--store", store, *NOW, "--archive", repo, "--yes", "--json")
    assert done.code == 0
    others_fill_the_disk = {"diskUsedRatio": 0}
    assert {**done.json, **others_fill_the_disk} == {**dry.json, **others_fill_the_disk}
    assert done.json["archived"] >= 2

    without = cli("--store", store, "get", "Orders", "0", "0")
    note = next(line for line in (without.out + without.err).splitlines() if "the queue starts at" in line)
    words = shlex.split(note.partition("Next: ")[2].rpartition(" (")[0])
    assert words[0] == "rstore"
    assert "from the archive" in cli(*words[1:]).err
    monkeypatch.setenv("RSTORE_ARCHIVE", str(repo))
    across = cli("--store", store, "get", "Orders", "0", "--count", "100000", "--json").lines
    origins = [row.pop("archived") for row in across]
    assert origins == sorted(origins, reverse=True)
    assert set(origins) == {True, False}
    assert across == every
    again = cli("--store", store, *query, "--json").lines
    assert {row.pop("archived") for row in again} <= {True, False}
    assert again == matches
    assert cli("--store", store, "get", "--physical-offset", "0", "--json").lines[0]["archived"] is True
    assert cli("--store", store, "get", "--msg-id", every[0]["msgId"], "--json").lines[0]["body"] == every[0]["body"]
    assert cli("--store", store, "salvage", "scan", "--json").json == scanned
    checked = cli("backup", "check", "--repo", repo, "--json").json
    assert (checked["clean"], checked["archivedSegments"]) == (True, done.json["archived"])


def test_what_is_said_without_it(store: Path, repo: Path, cli: Cli) -> None:
    assert cli("--store", store, "get", "Orders", "0", "--archive-name", "x").code == 2
    assert cli("--store", store, *NOW, "--key-file", "x").code == 2
    ran = cli("--store", store, "get", "Orders", "0", "--archive", repo)
    assert (ran.code, "no archive of a store" in ran.error_line) == (1, True)
    assert cli("--store", store, "backup", "create", "--repo", repo).code == 0
    assert cli("--store", store, *NOW, "--archive", repo, "--yes").code == 0
    for words in (("query", "Orders", "no such key"), ("get", "--physical-offset", "0"), ("get", "--msg-id", "x")):
        ran = cli("--store", store, *words)
        assert f"--archive {repo}" in ran.err, words
    (store / "config" / "rstoreArchive.json").write_text("{")
    assert cli("--store", store, "get", "Orders", "0", "0").code == 0
    ran = cli("--store", store, "get", "Orders", "0", "--archive", repo)
    assert ran.code == 4
    assert "--archive-name" in ran.error_line
    (store / "config" / "rstoreArchive.json").unlink()
    assert "archived" in cli("--store", store, "get", "Orders", "0", "--archive", repo, "--json").lines[0]


def test_a_daemon_is_refused_options_that_name_no_archive(store: Path, tmp_path: Path, cli: Cli) -> None:
    for words, why in (
        (("--archive-name", "x"), "require --archive"),
        (("--archive", "x://y"), "no kind of repository"),
        (("--archive", tmp_path, "--key-file", tmp_path / "none"), "none"),
        (("--archive", tmp_path, "--key-file", "x", "--key-command", "y"), "--key-file excludes --key-command"),
    ):
        ran = cli("--store", store, "serve", "--port", "0", "--no-names", *words)
        assert ran.code in (2, 5), words
        assert why in ran.error_line, words


def test_the_oldest_archived_segments_are_removed_as_planned(store: Path, repo: Path, cli: Cli) -> None:
    name = "--name", "a"
    assert cli("--store", store, "backup", "create", *name, "--repo", repo).code == 0
    assert cli("--store", store, *NOW, "--archive", repo, "--archive-name", "a", "--yes").code == 0
    forget = ("backup", "forget", "--repo", repo, "--archived-before")
    assert cli(*forget, "1970-01-02", "--json").json["changed"] is False
    assert "--keep options" in cli(*forget, "now", "--keep-last", "1").error_line
    assert cli(*forget, "now", "--name", "aa").error_line.endswith("(did you mean a?)")
    dry = cli(*forget, "now", *name, "--dry-run", "--json")
    assert (dry.code, dry.json["dryRun"]) == (1, True)
    (one,) = dry.json["archives"]
    assert (one["store"], one["segmentsKept"], one["minOffset"]) == ("a", 0, None)
    assert set(one) <= words_of("backup forget --archived-before")
    shown = cli(*forget, "now", "--dry-run")
    assert f"remove {one['segments']} archived segments" in shown.out
    assert "asks for confirmation" in cli(*forget, "now").error_line
    assert cli("backup", "check", "--repo", repo, "--json").json["archivedSegments"] == one["segments"]
    done = cli(*forget, "now", "--yes")
    assert (done.code, "Next: rstore backup prune" in done.out) == (0, True)
    assert cli("backup", "check", "--repo", repo, "--json").json["archivedSegments"] == 0
    assert cli(*forget, "now", "--yes").code == 0


def words_of(command: str) -> set[str]:
    """What BACKUP.md says of a command's JSON."""
    row = next(line for line in BACKUP_MD.read_text().splitlines() if line.startswith(f"| `{command}` |"))
    return set(row.split("`")[1::2])
