"""Backups in an object store that fails: a real S3 server behind a proxy of ours that makes the failures."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from engine.backup.check import check_repository
from engine.backup.objects.cloud import CloudObjects
from engine.backup.prune import forget, plan_forget, prune
from engine.backup.repository import Repository, create_repository, open_repository
from engine.backup.retention import Keep
from engine.config import of_store
from engine.errors import RStoreError, StorageError
from tests.compat.s3_faults import Fault, S3Proxy
from tests.compat.s3_server import CREDENTIALS, served
from tests.engine.backup import repositories
from tests.engine.opening import assert_sound

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PATIENCE_S = 20
"""How long a request is tried again here: a failure that stays shall not take minutes."""


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """The proxy before a server with the bucket `backups`; the environment leads to the proxy."""
    with served(tmp_path) as port, S3Proxy(port).running() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{running.port}")
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        yield running


def opened(patience_s: float = PATIENCE_S) -> Repository:
    return open_repository(CloudObjects("s3://backups/a", patience_s), lambda: repositories.SECRET)


def made() -> Repository:
    create_repository(CloudObjects("s3://backups/a", PATIENCE_S), repositories.SECRET, "2026-11-27T00:00:00+00:00", "t")
    return opened()


@pytest.mark.parametrize("fault", [Fault.FAILED, Fault.THROTTLED, Fault.CUT, Fault.UNSENT, Fault.UNHEARD])
def test_now_and_then(proxy: S3Proxy, fixture_store, tmp_path: Path, fault: Fault) -> None:
    """One request in six fails: each is tried again, and all is there."""
    random = Random(fault.name)
    repository = made()
    proxy.choose = lambda _: fault if random.random() < 1 / 6 else None
    store = fixture_store("clean-small")
    repositories.back_up(repository, store)
    repositories.back_up(repository, fixture_store("lmq"))
    forget(repository, plan_forget(repository, (), Keep(last=2), None))
    prune(repository, lambda _: True)
    assert not check_repository(repository, 1.0).bad
    oldest = repository.snapshots()[0]
    repositories.bring_back(repository, tmp_path / "new", oldest.snapshot_id)
    assert repositories.log_of(tmp_path / "new") == repositories.log_of(store)
    assert_sound(of_store(tmp_path / "new"))


def test_it_ends_in_the_middle_and_comes_back(proxy: S3Proxy, fixture_store, tmp_path: Path) -> None:
    """From any request on nothing is answered: an error, and after it came back the same call goes on."""
    store = fixture_store("lmq")
    made()
    repositories.back_up(opened(), store)
    before = len(proxy.asked)
    repositories.back_up(opened(), store, full=True)
    whole = len(proxy.asked) - before
    assert whole >= 10
    for last in range(2, whole - 1, max(1, whole // 5)):
        first = len(proxy.asked) + last
        proxy.choose = lambda asked, first=first: Fault.FAILED if asked.number > first else None  # type: ignore[misc]
        with pytest.raises(RStoreError) as failed:
            repositories.back_up(opened(0.2), store, full=True)
        assert "\n" not in str(failed.value)
        proxy.choose = lambda _: None
        assert not check_repository(opened(), 1.0).bad
    repositories.back_up(opened(), store, full=True)
    first = len(proxy.asked) + 6
    proxy.choose = lambda asked: Fault.UNSENT if asked.number > first else None
    with pytest.raises(RStoreError):
        repositories.bring_back(opened(0.2), tmp_path / "new")
    assert not (tmp_path / "new" / "commitlog").exists()
    proxy.choose = lambda _: None
    repositories.bring_back(opened(), tmp_path / "new")
    assert repositories.log_of(tmp_path / "new") == repositories.log_of(store)


def test_old_lists(proxy: S3Proxy, fixture_store, tmp_path: Path) -> None:
    """A cache gives lists of earlier: nothing is removed by what is not in them, and no two work unseen."""
    repository = made()
    repositories.back_up(repository, fixture_store("clean-small"))
    proxy.lists.clear()
    assert len(repository.snapshots()) == 1
    repositories.back_up(repository, fixture_store("lmq"))
    proxy.choose = lambda asked: Fault.OLD_LIST if asked.prefix is not None else None
    assert len(repository.snapshots()) == 1
    with pytest.raises(StorageError, match="old one"):
        prune(repository, lambda _: True)
    with pytest.raises(StorageError, match="old one"):
        repositories.back_up(repository, fixture_store("lmq"))
    proxy.choose = lambda _: None
    assert len(repository.snapshots()) == 2
    assert not check_repository(repository, 1.0).bad


def test_a_failing_store_is_one_line(proxy: S3Proxy, fixture_store) -> None:
    made()
    proxy.choose = lambda asked: Fault.THROTTLED if asked.method == "PUT" and "/pieces/" in asked.path else None
    env = {**os.environ, "RSTORE_REPO": "s3://backups/a", "RSTORE_REPO_KEY": repositories.SECRET.decode()}
    command = [sys.executable, "-m", "rstore_cli.app", "--store", str(fixture_store("lmq")), "backup", "create"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert ran.returncode == 5, ran
    assert "pieces/" in ran.stderr.splitlines()[-1], ran
    assert "Traceback" not in ran.stderr
