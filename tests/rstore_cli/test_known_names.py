"""A topic, group or queue that a store doesn't know is an error with the nearest name, in every command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.repair.salvage.undo import plan_undo
from tests.rstore_cli.conftest import Cli, damage
from tests.rstore_cli.walking import commands
from tests.support import stores
from tests.support.checking import check_clean

Store = Callable[[str], Path]

ON_SPARK = {"--spark", "pipeline"}

TOPICS = {
    ("get", "Ordres", "0"),
    ("get", "Ordres", "--msg-id", "0" * 32),
    ("query", "Ordres", "k1"),
    ("tail", "Ordres"),
    ("trace", "Ordres", "k1"),
    ("reindex", "--topic", "Ordres", "--dry-run"),
    ("reindex", "--topic", "Ordres", "--yes"),
    ("reindex", "--topic", "Ordres", "--dry-run", "--spark"),
    ("dump", "commitlog", "--topic", "Ordres"),
    ("dump", "commitlog", "--topic", "Ordres", "--spark"),
    ("dump", "consumequeue", "Ordres", "0"),
    ("offsets", "list", "--topic", "Ordres"),
    ("offsets", "set", "billing", "Ordres", "0", "0", "--yes"),
    ("salvage", "export", "REPAIR", "--topic", "Ordres", "--output", "OUTPUT"),
    ("salvage", "replay", "--topic", "Ordres", "--dry-run"),
    ("rebuild-config", "--topic", "Ordres", "--dry-run"),
    ("pipeline", "stats", "--topic", "Ordres"),
    ("pipeline", "lag", "--topic", "Ordres"),
    ("pipeline", "grep", "--topic", "Ordres"),
    ("pipeline", "export", "--topic", "Ordres", "--output", "OUTPUT"),
    ("pipeline", "diff", "STORE", "STORE2", "--topic", "Ordres"),
    ("pipeline", "reindex", "--topic", "Ordres"),
}
GROUPS = {
    ("offsets", "list", "--group", "biling"),
    ("rebuild-config", "--group", "biling", "--dry-run"),
    ("pipeline", "lag", "--group", "biling"),
}
QUEUES = {
    ("get", "Orders", "99"),
    ("dump", "consumequeue", "Orders", "99"),
    ("offsets", "set", "billing", "Orders", "99", "0", "--yes"),
    ("salvage", "export", "REPAIR", "--topic", "Orders", "--queue", "99", "--output", "OUTPUT"),
    ("salvage", "export", "REPAIR", "--queue", "99", "--output", "OUTPUT"),
}
MAY_BE_NEW = {
    ("put", "topic"),  # a put makes the topic; a note names the one that is nearly called so
    ("put", "queue"),
    ("offsets", "set", "group"),  # a group may have read nothing yet: the plan says that nobody knows it
}
CLUSTER = {
    *(("send", "topic"), ("send", "group"), ("consume", "topic"), ("consume", "group"), ("consume", "queue")),
    ("copy", "topics"),
}
"""Names of a running cluster, which says itself what it does not have."""
OTHERS = {
    ("pipeline", "grep", "queue"),  # of any topic: nothing found is an answer
    *(("dump", "tiered", "topic"), ("dump", "tiered", "queue")),  # of tiered files: test_dump_tiered.py
    *(("dump", "compaction", "topic"), ("dump", "compaction", "queue")),  # of compacted topics: test_dump_compaction.py
    ("restore", "topic"),  # of a snapshot: tests/rstore_cli/test_backup.py
    ("pipeline", "import", "topic"),  # of a table, which is no store: tests/pipeline/test_import.py
}
"""Parameters of these names that are no question for what is there."""


@pytest.fixture
def store(fixture_copy: Store, cli: Cli) -> Iterator[Path]:
    """A store with a repair, groups and topics.json. No command may change a byte of it."""
    found = fixture_copy("clean-small")
    damage(found)
    assert cli("--store", found, "recover", "--cut", "--yes").code == 0
    (found / "config").mkdir()
    (found / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Orders@billing":{0:1}}}')
    before = stores.snapshot(found)
    yield found
    after = stores.snapshot(found)
    for one in (before, after):
        one.pop("lock", None)
        one.pop(".", None)
    assert {k: v.digest for k, v in after.items()} == {k: v.digest for k, v in before.items()}
    check_clean(found, known={"config-missing"}, why="the fixture has no topics.json")


def filled(words: tuple[str, ...], store: Path) -> list[str]:
    """The words with what is only known at run time."""
    repair = plan_undo(Disk(), StoreConfig(store_path_root_dir=store)).repairs[-1].name if "REPAIR" in words else ""
    places = {"REPAIR": repair, "OUTPUT": str(store.parent / "output"), "STORE": str(store), "STORE2": f"two={store}"}
    return [places.get(word, word) for word in words]


def here(several: set[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return sorted(words for words in several if not ON_SPARK & set(words))


@pytest.mark.leaves("config-missing")
@pytest.mark.parametrize("words", here(TOPICS))
def test_a_topic(words: tuple[str, ...], store: Path, cli: Cli) -> None:
    ran = cli("--store", store, *filled(words, store))
    assert ran.code == 2
    assert "no topic Ordres" in ran.error_line
    assert "(did you mean Orders?)" in ran.error_line
    assert not (store.parent / "output").exists()
    said = json.loads(cli("--store", store, *filled(words, store), "--json").out.splitlines()[-1])["error"]
    assert (said["code"], said["hint"]) == ("usage", "did you mean Orders?")


@pytest.mark.leaves("config-missing")
@pytest.mark.parametrize("words", here(GROUPS))
def test_a_group(words: tuple[str, ...], store: Path, cli: Cli) -> None:
    ran = cli("--store", store, *filled(words, store))
    assert ran.code == 2
    assert "no group biling" in ran.error_line
    assert "(did you mean billing?)" in ran.error_line


@pytest.mark.leaves("config-missing")
@pytest.mark.parametrize("words", here(QUEUES))
def test_a_queue(words: tuple[str, ...], store: Path, cli: Cli) -> None:
    ran = cli("--store", store, *filled(words, store))
    assert ran.code == 2
    assert "no queue Orders/99" in ran.error_line or "no topic has a queue 99" in ran.error_line
    assert not (store.parent / "output").exists()


@pytest.mark.leaves("config-missing")
@pytest.mark.parametrize(
    ("name", "shown"),
    [("", "''"), (" ", "' '"), ("a ", "'a '"), ("a\x1b[31mb", "'a\\x1b[31mb'"), ("订单", "订单"), ("../x", "../x")],
)
def test_a_name_is_printed_so_that_it_can_be_seen(name: str, shown: str, store: Path, cli: Cli) -> None:
    assert f"no topic {shown}: " in cli("--store", store, "get", name, "0").error_line
    assert f"no group {shown}: " in cli("--store", store, "offsets", "list", "--group", name).error_line


def test_every_parameter_that_names_one_is_walked() -> None:
    named = {"topic", "topics", "group", "queue"}
    found = {(*words, p.name) for words, command in commands() for p in command.params if p.name in named}
    walked = set()
    for several, name in ((TOPICS, "topic"), (GROUPS, "group"), (QUEUES, "queue")):
        for words in several:
            for length in (1, 2):
                walked |= {(*words[:length], name)}
                walked |= {(*words[:length], "topics")} if name == "topic" else set()
    found = {one for one in found if one[0] != "admin"}  # a cluster's, all of them: tests/rstore_cli/test_admin.py
    assert found - walked - MAY_BE_NEW - OTHERS - CLUSTER == set()
    assert found >= MAY_BE_NEW | OTHERS | CLUSTER


def test_a_topic_of_the_log_alone_is_found(new_store: Path, cli: Cli) -> None:
    """Whose queues are lost, or that was deleted: the log still has its messages."""
    assert cli("--store", new_store, "put", "Gone", "--body", "x", "--keys", "k").code == 0
    shutil.rmtree(new_store / "consumequeue" / "Gone")
    assert len(cli("--store", new_store, "dump", "commitlog", "--topic", "Gone", "--json").lines) == 1
    assert len(cli("--store", new_store, "query", "Gone", "k", "--json").lines) == 1
    assert cli("--store", new_store, "reindex", "--topic", "Gone", "--yes").code == 0
    assert len(cli("--store", new_store, "get", "Gone", "0", "--json").lines) == 1


def test_a_topic_that_has_no_message_yet_is_known(new_store: Path, cli: Cli) -> None:
    (new_store / "config").mkdir(exist_ok=True)
    topic = '{"topicName":"New","readQueueNums":4,"writeQueueNums":4,"perm":6}'
    (new_store / "config" / "topics.json").write_text(f'{{"topicConfigTable":{{"New":{topic}}}}}')
    ran = cli("--store", new_store, "get", "New", "3")
    assert (ran.code, ran.out) == (0, "")
    assert "New/3 has no files: no message was put" in ran.err
    assert "no queue New/4" in cli("--store", new_store, "get", "New", "4").error_line
    assert cli("--store", new_store, "query", "New", "k").code == 1
    assert cli("--store", new_store, "dump", "commitlog", "--topic", "New").code == 0
    assert "did you mean New?" in cli("--store", new_store, "get", "new", "0").error_line


def test_a_store_without_topics_says_so(new_store: Path, cli: Cli) -> None:
    assert "(there are no topics)" in cli("--store", new_store, "get", "T", "0").error_line


def test_a_put_into_a_new_topic_names_the_one_that_is_nearly_called_so(new_store: Path, cli: Cli) -> None:
    assert cli("--store", new_store, "put", "Orders", "--body", "x").err == ""
    ran = cli("--store", new_store, "put", "Ordres", "--body", "x")
    assert ran.code == 0
    assert ran.err == "note: the topic Ordres is new (did you mean Orders?)\n"
    assert cli("--store", new_store, "put", "Payments", "--body", "x").err == ""
