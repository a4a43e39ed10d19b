"""Repositories in object storage on Spark: a real S3 server; credentials and key are the environment's."""

# ruff: noqa: F811
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compat.test_backup import s3  # noqa: F401 - a fixture
from tests.engine.backup import repositories
from tests.engine.pipeline.test_repositories import back_up
from tests.pipeline import plain

pytestmark = [pytest.mark.spark, pytest.mark.interop]
Store = Callable[[str], Path]
TIME_S = 600


def rstore(*words: object, exit_code: int = 0, **env: str) -> Any:
    """A command of its own, whose executors have the environment that it has."""
    ran = subprocess.run(
        [sys.executable, "-m", "rstore_cli.app", *map(str, words), "--json"],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=TIME_S,
        check=False,
    )
    assert ran.returncode == exit_code, ran
    assert repositories.SECRET.decode() not in ran.stdout + ran.stderr
    return json.loads(ran.stdout)


def test_a_fleet_in_object_storage(s3: int, fixture_store: Store, tmp_path: Path) -> None:
    repository = repositories.new("s3://backups/fleet")
    names = ("clean-small", "crashed-small")
    for name in names:
        back_up(repository, name, fixture_store(name))
    secret = {"RSTORE_REPO_KEY": repositories.SECRET.decode()}
    table = tmp_path / "t"
    added = rstore("pipeline", "export", "--repo", "s3://backups/fleet", "--output", table, "--by", "hour", **secret)
    every = {name: len(plain.records(fixture_store(name))) for name in names}
    assert added["messages"] == sum(every.values())
    own = fixture_store("clean-small")
    same = rstore("pipeline", "diff", own, "--repo", "s3://backups/fleet", "--name", "clean-small", **secret)
    assert (same["missing_in_a"], same["missing_in_b"], same["differing"]) == (0, 0, 0)
    assert same["messages_b"] == every["clean-small"]
    (tmp_path / "wrong").write_text("another key than that")
    refused = rstore("pipeline", "verify", "s3://backups/fleet", "--key-file", tmp_path / "wrong", exit_code=4)
    assert refused["error"]["code"] == "wrong-key"
