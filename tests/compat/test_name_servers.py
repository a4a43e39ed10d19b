"""Our commands with two name servers: Apache's, which was just started and knows no broker, and our own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.compat import real_broker, served, toolchain
from tests.rstore_cli.conftest import Cli, cli

__all__ = ["cli"]

pytestmark = pytest.mark.interop


def test_one_that_was_just_started(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with ExitStack() as stack:
        try:
            empty = stack.enter_context(real_broker.name_server(tmp_path / "names"))
        except toolchain.Missing as missing:
            pytest.skip(str(missing))
        knowing = stack.enter_context(served.serve(tmp_path / "store"))
        alone = cli("send", "T", "--namesrv", empty, "--body", "x")
        assert (alone.code, "no broker serves topic T" in alone.error_line) == (1, True), alone
        for number, names in enumerate((f"{empty};{knowing.names}", f"{knowing.names};{empty}")):
            named = ("--namesrv", names)
            assert cli("send", "T", *named, "--body", "x", "--timeout", "60").code == 0
            assert len(cli("consume", "T", *named, "--from-beginning", "--json").lines) == number + 1
            assert "T" in [row["topic"] for row in cli("admin", "topic", "list", *named, "--json").lines]
            assert len(cli("admin", "cluster", "list", *named, "--json").lines) == 1
            assert cli("admin", "topic", "status", "T", *named).code == 0
        wrong = cli("admin", "topic", "list", "--namesrv", knowing.broker)
        assert (wrong.code, "it answers as a broker does" in wrong.error_line) == (5, True), wrong
