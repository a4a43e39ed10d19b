"""What an ordinary user sees of a store that is another's: one line, whose it is, and what to type instead."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Store
from tests.support.ordinary import ordinary


def ran(*words: str | Path) -> tuple[int, str]:
    """The exit code and the error of a command that an ordinary user types."""
    command = [*ordinary(), sys.executable, "-m", "rstore_cli.app", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stderr


def test_a_file_that_may_not_be_read(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    file = next((store / "commitlog").iterdir())
    file.chmod(0)
    code, said = ran("--store", store, "verify-crc")
    assert (code, said.count("\n")) == (5, 1)
    assert "permission denied" in said
    assert "owner and mode" in said
    file.chmod(0o644)


@pytest.mark.parametrize("above", [False, True])
def test_a_store_that_may_not_be_looked_into(above: bool, fixture_copy: Store) -> None:
    """Itself, or a directory above it: not a word of a store that isn't there."""
    store = fixture_copy("clean-small")
    closed = store.parent if above else store
    mode = closed.stat().st_mode
    closed.chmod(0)
    try:
        code, said = ran("status", "--store", store)
    finally:
        closed.chmod(mode)
    assert (code, said.count("\n")) == (5, 1)
    assert f"permission denied: {closed} (chmod u+rwx {closed})" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_store_of_another_user(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    owner = pwd.getpwall()[-1]
    assert owner.pw_uid
    os.chown(store, owner.pw_uid, owner.pw_gid)
    store.chmod(0o750)
    code, said = ran("status", "--store", store)
    assert (code, said.count("\n")) == (5, 1)
    assert f"permission denied: user root can't read a directory of {owner.pw_name}: {store}" in said
    assert said.endswith(f"(sudo -u {owner.pw_name} rstore status --store {store})\n")


def test_a_configuration_that_may_not_be_read(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\n")
    conf.chmod(0)
    code, said = ran("status", "-c", conf)
    assert (code, said.count("\n")) == (5, 1)
    assert f"reading the configuration: permission denied: {conf} (look at owner and mode" in said
