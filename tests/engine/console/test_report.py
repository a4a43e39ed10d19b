"""A report: what the commands say, in one file that loads nothing; redacted, it names nobody."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.conftest import cli as cli  # noqa: PLC0414 - the fixture
from tests.support import stores

Store = Callable[[str], Path]


@pytest.mark.parametrize("name", ["clean-small", "crashed-small", "lmq"])
def test_one_file_holds_it_all(name: str, fixture_store: Store, tmp_path: Path, cli: Cli) -> None:
    root = fixture_store(name)
    before = stores.snapshot(root)
    file = tmp_path / "report.html"
    ran = cli("--store", root, "report", "--html", file, "--json")
    assert ran.code == 0
    assert stores.snapshot(root) == before
    assert ran.json["check"]["findings"] == cli("--store", root, "check", "--json").json["findings"]
    text = file.read_text(encoding="utf-8")
    assert str(root) in text
    assert not re.search(r"<script|<link|src=|@import|url\(", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize("name", ["clean-small", "crashed-small", "lmq"])
def test_redacted_it_names_nobody(name: str, fixture_store: Store, tmp_path: Path, cli: Cli) -> None:
    root = fixture_store(name)
    file = tmp_path / "report.html"
    assert cli("--store", root, "report", "--html", file, "--redact").code == 0
    text = file.read_text(encoding="utf-8")
    topics = {path.name for path in (root / "consumequeue").iterdir()} - {"SCHEDULE_TOPIC_XXXX"}
    groups = {one["group"] for one in cli("--store", root, "offsets", "list", "--json").lines}
    named = {one for one in topics | groups if re.search(rf"(?<![\w%-]){re.escape(one)}(?![\w%-])", text)}
    assert named == set()
    assert str(root) not in text
    assert "topic-1" in text


def test_it_is_asked_for_a_file_outside_of_the_store(fixture_copy: Store, tmp_path: Path, cli: Cli) -> None:
    root = fixture_copy("clean-small")
    assert cli("--store", root, "report").code == 2
    assert cli("--store", root, "report", "--html", root / "x.html").code == 2
    assert cli("--store", tmp_path / "nosuch", "report", "--html", tmp_path / "x.html").code == 4
