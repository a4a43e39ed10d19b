"""What lies on a disk that is not mounted is absent, not lost: nothing is changed before it is there again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import DamageInTheMiddle, DataIsAbsent
from engine.files.disk import Disk
from engine.inspect.check.check import check
from engine.inspect.check.doctor import doctor
from engine.inspect.dump.salvage_list import inventory
from engine.inspect.status.status import status
from engine.repair.expire.expire import ExpireRules, plan_expire
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover, plan_truncate
from engine.repair.reindex.reindex import Scope, build
from engine.repair.salvage.prune import plan_prune
from engine.repair.salvage.undo import plan_undo, undo
from engine.store import MessageStore
from tests.engine.repair.test_rules import SIZES, damage, messages, put, recover, settings
from tests.support import stores
from tests.support.checking import check_clean

PLACES: dict[str, Callable[[Path], Path]] = {
    "first-segment": lambda root: root / "commitlog" / f"{0:020d}",
    "segment": lambda root: root / "commitlog" / f"{SIZES['mapped_file_size_commit_log']:020d}",
    "last-segment": lambda root: max((root / "commitlog").iterdir()),
    "commitlog": lambda root: root / "commitlog",
    "queue-file": lambda root: root / "consumequeue" / "T" / "0" / f"{400:020d}",
    "queue": lambda root: root / "consumequeue" / "T" / "1",
    "topic": lambda root: root / "consumequeue" / "T",
    "consumequeue": lambda root: root / "consumequeue",
    "index-file": lambda root: min((root / "index").iterdir()),
    "index": lambda root: root / "index",
    "checkpoint": lambda root: root / "checkpoint",
    "topics": lambda root: root / "config" / "topics.json",
    "config": lambda root: root / "config",
}


class Away:
    """A place of a store that lies on another disk, which is not mounted."""

    def __init__(self, path: Path, disk: Path) -> None:
        self.path = path
        self._disk, self._away = disk, disk.with_name("not-mounted")
        disk.mkdir()
        path.rename(disk / path.name)
        path.symlink_to(disk / path.name)
        disk.rename(self._away)

    def mount(self) -> None:
        self._away.rename(self._disk)


@pytest.fixture(params=PLACES)
def away(request: pytest.FixtureRequest, tmp_path: Path) -> Away:
    root = tmp_path / "store"
    put(root, 300)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"T":{"topicName":"T"}}}')
    return Away(PLACES[request.param](root), tmp_path / "disk")


@pytest.mark.leaves("checkpoint-missing", "index-missing", "log-missing", "unit-missing")
@pytest.mark.parametrize("abort", [False, True])
def test_it_is_refused_by_name_and_all_is_there_again_once_it_is_mounted(
    abort: bool, away: Away, tmp_path: Path
) -> None:
    root, disk = tmp_path / "store", Disk()
    if abort:
        (root / "abort").touch()
    before = stores.snapshot(root)
    config = settings(root)

    for choice in ({}, {"cut": True}, {"bridge": True}, {"log_is_gone": True}):
        plan = plan_recover(disk, config, **choice)
        assert away.path.name not in {Path(odd.path).name for odd in plan.set_aside}
        with pytest.raises(DataIsAbsent) as refused:
            apply(disk, plan)
        assert (refused.value.exit_code, refused.value.path) == (4, str(away.path))
        assert str(tmp_path / "disk") in refused.value.message
        assert "mount" in str(refused.value.hint)
        assert "rstore recover" in str(refused.value.hint)
    with pytest.raises(DataIsAbsent):
        MessageStore.open(config)
    for found in (check(disk, config).findings, doctor(disk, config).findings):
        assert [f.code for f in found if str(f.where) in str(away.path)].count("file-absent") == 1
    assert str(away.path) in {odd.path for odd in status(disk, config).files.odd}
    assert stores.snapshot(root) == before

    away.mount()
    recover(root)
    assert len(messages(root, follow_links=True)) == 300
    assert away.path.is_symlink()
    check_clean(root, config)


@pytest.mark.parametrize("command", ["truncate", "reindex", "expire"])
def test_no_other_command_changes_a_store_while_data_is_absent(command: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, 300)
    away = Away(PLACES["segment"](root), tmp_path / "disk")
    before = stores.snapshot(root)
    config = settings(root)
    commands: dict[str, Callable[[], object]] = {
        "truncate": lambda: apply(Disk(), plan_truncate(Disk(), config, to_offset=0)),
        "reindex": lambda: build(Disk(), config, str(tmp_path / "built"), Scope()),
        "expire": lambda: plan_expire(Disk(), config, ExpireRules()),
    }
    with pytest.raises(DataIsAbsent) as refused:
        commands[command]()
    assert refused.value.path == str(away.path)
    assert stores.snapshot(root) == before
    away.mount()


def test_who_knows_that_it_is_gone_removes_the_link(tmp_path: Path) -> None:
    """As the hint says: then it is a missing segment."""
    root = tmp_path / "store"
    put(root, 300)
    away = Away(PLACES["segment"](root), tmp_path / "disk")
    plan = plan_recover(Disk(), settings(root))
    assert plan.refusal is not None
    assert f"rm {away.path}" in str(plan.refusal.hint)
    away.path.unlink()
    plan = plan_recover(Disk(), settings(root))
    assert isinstance(plan.refusal, DamageInTheMiddle)
    assert "--bridge" in str(plan.refusal.hint)
    apply(Disk(), plan_recover(Disk(), settings(root), bridge=True))
    assert len(messages(root)) > 200


def _bridged_elsewhere(tmp_path: Path) -> tuple[Path, Path, int]:
    """A store whose repair saved on another disk; the link to it in salvage/; the last record's place in the log."""
    root = tmp_path / "store"
    offsets = put(root, 100)
    damage(root, offsets[-30] + 120, b"\xff" * 20)
    apply(Disk(), plan_recover(Disk(), settings(root), bridge=True), salvage_dir=str(tmp_path / "usb"))
    (link,) = (root / "salvage").iterdir()
    return root, link, offsets[-1]


@pytest.mark.parametrize("abort", [False, True])
def test_a_sound_store_needs_no_disk_that_a_finished_repair_saved_on(abort: bool, tmp_path: Path) -> None:
    root, link, _ = _bridged_elsewhere(tmp_path)
    config = settings(root)
    (tmp_path / "usb").rename(tmp_path / "unplugged")
    if abort:
        (root / "abort").touch()
    before = stores.snapshot(root)
    needs: dict[str, Callable[[], object]] = {
        "undo": lambda: plan_undo(Disk(), config),
        "salvage list": lambda: inventory(Disk(), config),
        "salvage prune": lambda: plan_prune(Disk(), config, keep=0),
    }
    for command, run in needs.items():
        with pytest.raises(DataIsAbsent) as refused:
            run()
        assert refused.value.path == str(link), command
        assert "mount" in str(refused.value.hint)
    found = check(Disk(), config).findings
    assert [f.code for f in found if f.where == f"salvage/{link.name}"] == ["file-ignored"]
    assert stores.snapshot(root) == before

    plan = plan_recover(Disk(), config)
    assert (plan.changed, plan.refusal) == (False, None)
    assert any(link.name in problem for problem in plan.problems)
    with MessageStore.open(config) as store:
        assert store.max_offset("T", 0) == 50
    put(root, 10, first=100)
    check_clean(root, config, known={"index-key"}, why="that the record was bridged is told by the absent manifest")
    (tmp_path / "unplugged").rename(tmp_path / "usb")


def test_the_repair_made_meanwhile_is_the_first_to_be_taken_back(tmp_path: Path) -> None:
    root, link, last = _bridged_elsewhere(tmp_path)
    config = settings(root)
    (tmp_path / "usb").rename(tmp_path / "unplugged")
    apply(Disk(), plan_truncate(Disk(), config, to_offset=last), command="truncate")
    (tmp_path / "unplugged").rename(tmp_path / "usb")
    undo(Disk(), plan_undo(Disk(), config))
    assert plan_undo(Disk(), config).repairs[0].name == link.name


def test_a_repair_that_may_be_unfinished_stops_every_change_while_its_disk_is_away(tmp_path: Path) -> None:
    class Killed(Disk):
        def step(self, name: str) -> None:
            if name == "recover.log-done":
                raise KeyboardInterrupt

    root = tmp_path / "store"
    offsets = put(root, 100)
    damage(root, offsets[-30] + 120, b"\xff" * 20)
    config = settings(root)
    with pytest.raises(KeyboardInterrupt):
        apply(Killed(), plan_recover(Disk(), config, bridge=True), salvage_dir=str(tmp_path / "usb"))
    (link,) = (root / "salvage").iterdir()
    (tmp_path / "usb").rename(tmp_path / "unplugged")
    plan = plan_recover(Disk(), config)
    assert isinstance(plan.refusal, DataIsAbsent)
    assert plan.refusal.path == str(link)
    assert "may be unfinished" in plan.refusal.message
    with pytest.raises(DataIsAbsent):
        MessageStore.open(config)
    (tmp_path / "unplugged").rename(tmp_path / "usb")
    recover(root)
