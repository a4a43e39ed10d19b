"""`rstore backup` and `rstore restore`: answers, JSON as BACKUP.md has it, plans, refusals, exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import engine.backup
from tests.docs.markdown import section, tables
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_without_extras import without
from tests.support import newer, stores

BACKUP = Path(engine.backup.__file__).with_name("BACKUP.md")


@pytest.fixture
def repo(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository, whose location and key are in the environment."""
    monkeypatch.setenv("RSTORE_REPO", str(tmp_path / "repo"))
    monkeypatch.setenv("RSTORE_REPO_KEY", "the key of a test")
    assert cli("backup", "init").code == 0
    return tmp_path / "repo"


def keys_of(command: str) -> set[str]:
    rows = {row["command"]: row["keys"] for row in tables(section(BACKUP, "JSON"), marks=True)[0]}
    (said,) = (keys for commands, keys in rows.items() if f"`{command}`" in commands.split(", "))
    keys = set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", said)))
    return keys - {"error"} | (keys_of("backup list") - {"error"} if "`backup list`" in said else set())


def test_a_backup_and_its_restore(fixture_store, tmp_path: Path, repo: Path, cli: Cli) -> None:
    store = fixture_store("crashed-small")
    before = stores.snapshot(store)
    created = cli("--store", store, "backup", "create", "--json")
    assert (created.code, set(created.json)) == (0, keys_of("backup create"))
    again = cli("--store", store, "backup", "create", "--name", "other", "--rate", "500M")
    assert again.code == 0
    assert "560 messages" in again.out
    listed = cli("backup", "list", "--json")
    assert [set(line) for line in listed.lines] == [keys_of("backup list") | {"error"}] * 2
    assert len(cli("backup", "list", "--name", "other", "--json").lines) == 1
    assert "other" in cli("backup", "list").out
    shown = cli("backup", "show", created.json["snapshot"][:8], "--json")
    assert (shown.code, set(shown.json)) == (0, keys_of("backup show"))
    assert sum(segment["messages"] for segment in shown.json["log"]) == created.json["messages"] == 560
    assert "checkpoint" in cli("backup", "show", "latest", "--name", "other").out
    checked = cli("backup", "check", "--all", "--json")
    assert (checked.code, set(checked.json)) == (0, keys_of("backup check"))
    assert checked.json["piecesRead"] == checked.json["pieces"]
    assert cli("backup", "check", "--read-data", "20%").code == 0
    several = cli("--store", tmp_path / "new", "restore")
    assert (several.code, "several stores" in several.err) == (2, True)
    restored = cli("--store", tmp_path / "new", "restore", created.json["snapshot"], "--json")
    assert (restored.code, set(restored.json)) == (0, keys_of("restore"))
    assert restored.json["check"]["counts"]["messages"] == 560
    assert stores.snapshot(store) == before
    unchecked = cli("--store", tmp_path / "unchecked", "restore", "--no-check", "--name", "other")
    assert (unchecked.code, unchecked.out.splitlines()[-1]) == (
        0,
        f"Not checked. Next: rstore --store {tmp_path / 'unchecked'} check",
    )
    assert cli("--store", tmp_path / "unchecked", "check").code == 0
    text = cli("--store", tmp_path / "early", "restore", "--to-time", "2000-01-01", "--name", "other")
    assert "Checked: nothing is wrong." in text.out


def test_some_topics_alone(fixture_store, tmp_path: Path, repo: Path, cli: Cli) -> None:
    assert cli("--store", fixture_store("clean-small"), "backup", "create").code == 0
    topics = {row["topic"] for row in cli("--store", fixture_store("clean-small"), "status", "--json").json["topics"]}
    wanted = sorted(one for one in topics if not one.startswith(("%", "SCHEDULE", "RMQ_")))[:2]
    words = [word for topic in wanted for word in ("--topic", topic)]
    restored = cli("--store", tmp_path / "new", "restore", *words, "--json")
    assert (restored.code, set(restored.json)) == (0, keys_of("restore"))
    assert restored.json["topics"] == wanted
    near = cli("--store", tmp_path / "other", "restore", "--topic", wanted[0][:-1] + "_")
    assert (near.code, "did you mean" in near.err, wanted[0] in near.err) == (2, True, True)
    assert not (tmp_path / "other").exists()


def test_snapshots_go_and_space_is_freed(fixture_store, repo: Path, cli: Cli) -> None:
    for _ in range(3):
        assert cli("--store", fixture_store("clean-small"), "backup", "create").code == 0
    dry = cli("backup", "forget", "--keep-daily", "1", "--dry-run", "--json")
    assert (dry.code, set(dry.json)) == (1, keys_of("backup forget"))
    assert (len(dry.json["forgotten"]), len(dry.json["kept"])) == (2, 1)
    assert cli("backup", "forget", "--keep-daily", "1").code == 2  # nobody to ask
    assert cli("backup", "forget").code == 2
    assert cli("backup", "forget", "--keep-daily", "1", "--yes").code == 0
    (last,) = cli("backup", "list", "--json").lines
    assert cli("backup", "forget", last["snapshot"], "--yes").code == 0
    plan = cli("backup", "prune", "--dry-run", "--json")
    assert (plan.code, set(plan.json)) == (1, keys_of("backup prune"))
    assert cli("backup", "prune", "--yes").code == 0
    assert not [path for path in (repo / "pieces").rglob("*") if path.is_file()]
    assert "Nothing to remove." in cli("backup", "prune").out
    assert cli("backup", "show", "latest").code == 1


def test_keys_are_replaced(tmp_path: Path, repo: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    new = tmp_path / "new.key"
    new.write_text("another key of a test\n")
    added = cli("backup", "key", "add", "--new-key-file", new, "--json")
    assert (added.code, set(added.json)) == (0, keys_of("backup key add"))
    listed = cli("backup", "key", "list", "--key-file", new, "--json").lines
    assert all(set(line) == keys_of("backup key list") for line in listed)
    (old,) = (line["key"] for line in listed if not line["given"])
    assert cli("backup", "key", "remove", added.json["key"], "--key-file", new).code == 4
    assert cli("backup", "key", "remove", old, "--key-file", new).code == 0
    monkeypatch.delenv("RSTORE_REPO_KEY")
    assert cli("backup", "list", "--key-command", f"cat {new}").code == 0
    assert cli("backup", "list", "--key-command", "false").code == 5
    assert cli("backup", "list", "--key-command", "no-such-program").code == 5
    assert cli("backup", "list").code == 4


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("backup list --repo /nowhere/at/all", 4, "no backup repository here"),
        ("backup list --repo ftp://x/y", 2, "no kind of repository"),
        ("backup list --repo s3://", 2, "location is empty"),
        ("backup init", 4, "not empty"),
        ("backup show ffff", 1, "no snapshot has an id"),
        ("backup check --read-data 200%", 2, "no share"),
        ("backup create --rate 0", 2, "--rate"),
        ("restore", 1, "no snapshot"),
        ("restore --offsets none", 2, "as-were"),
        ("restore --to-offset 0 --to-time 14:05", 2, "only one end"),
    ],
)
def test_refusals(words: str, code: int, says: str, tmp_path: Path, fixture_store, repo: Path, cli: Cli) -> None:
    store = fixture_store("lmq") if words.startswith("backup") else tmp_path / "new"
    ran = cli("--store", store, *words.split())
    assert ran.code == code
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_damaged_repository_is_named(fixture_store, tmp_path: Path, repo: Path, cli: Cli) -> None:
    assert cli("--store", fixture_store("clean-small"), "backup", "create").code == 0
    one, two = [path for path in sorted((repo / "pieces").rglob("*")) if path.is_file()][:2]
    data = bytearray(one.read_bytes())
    data[len(data) // 2] ^= 1
    one.write_bytes(data)
    two.unlink()
    found = cli("backup", "check", "--all", "--json")
    assert found.code == 1
    assert {bad["object"].rpartition("/")[2] for bad in found.json["bad"]} == {one.name, two.name}
    assert one.name in cli("backup", "check", "--all").out
    ran = cli("--store", tmp_path / "new", "restore")
    assert ran.code in (1, 4)
    assert not (tmp_path / "new" / "commitlog").exists()
    assert cli("--store", fixture_store("clean-small"), "backup", "create", "--full").code == 0
    assert cli("backup", "check", "--all", "--json").json["bad"] == []


@pytest.mark.parametrize("name", ["batch", "compaction", "controller", "dledger", "rocksdb", "tiered", "timer"])
def test_stores_with_parts_of_rocketmq_5_that_the_log_does_not_restore_are_refused(
    name: str, tmp_path: Path, repo: Path, cli: Cli
) -> None:
    root = newer.unpack(name, tmp_path)
    ran = cli("--store", root, "backup", "create")
    assert (ran.code, "no backup of such a store is made" in ran.err) == (4, True), ran
    assert cli("backup", "list", "--json").lines == []


@pytest.mark.parametrize("name", ["default", "long-topic", "property-crc"])
def test_stores_of_rocketmq_5_with_queues_in_files(name: str, tmp_path: Path, repo: Path, cli: Cli) -> None:
    """Log, queues, index with its keys of tags, and tables are as their broker left them."""
    root, new = newer.unpack(name, tmp_path / "old"), tmp_path / "new"
    before = stores.snapshot(root)
    assert cli("--store", root, "backup", "create").code == 0
    assert stores.snapshot(root) == before
    restored = cli("--store", new, "restore", "--json")
    assert (restored.code, restored.json["check"]["ok"]) == (0, True)
    assert _bytes_of(new) == _bytes_of(root)
    assert cli("--store", new, "recover", "--dry-run").code == 0


def test_records_of_some_topics_keep_a_property_crc_of_their_own(tmp_path: Path, repo: Path, cli: Cli) -> None:
    """It covers the physical offset, which is another one there."""
    root, new = newer.unpack("property-crc", tmp_path / "old"), tmp_path / "new"
    for topic in ("Other", "T"):
        assert cli("--store", root, "put", topic, "--body", "more").code == 0
    assert cli("--store", root, "backup", "create").code == 0
    assert cli("--store", new, "restore", "--topic", "T").code == 0
    first, second = (cli("--store", one, "--json", "verify-crc").json for one in (root, new))
    assert second["propertyCrcRecords"] == first["propertyCrcRecords"] - 1
    assert second["propertyCrcMismatches"] == 0
    assert cli("--store", new, "check").code == 0


def _bytes_of(root: Path) -> dict[str, bytes]:
    """What a restore makes, by its path; an index file has the name of when it was made."""
    parts = ("commitlog", "consumequeue", "index", "config")
    paths = [
        path for part in parts for path in sorted((root / part).rglob("*")) if path.is_file() and path.stat().st_size
    ]
    return {
        str(path.relative_to(root)) if path.parent.name != "index" else "index": path.read_bytes() for path in paths
    }


def test_a_package_that_is_missing_is_named(tmp_path: Path, repo: Path) -> None:
    ((code, _, err),) = without(("backup", "list"))
    assert code == 5
    assert "pip install 'rstore[backup]'" in err
