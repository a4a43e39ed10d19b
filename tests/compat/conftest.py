"""The interop tests need Java, Maven and Apache's jars: without them they are skipped, in one sentence.

At the end of a run that counted what is lost of the damaged stores, the table of it (loss_table.py).
"""

from __future__ import annotations

import pytest

from tests.compat import apache, loss_table
from tests.compat.corpora import Bases
from tests.compat.loss import Truths


@pytest.fixture(scope="session")
def apache_store() -> None:
    """Apache's store is there to be run."""
    try:
        apache.harness()
    except apache.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    """The undamaged stores of both corpora."""
    return Bases(tmp_path_factory.mktemp("bases"))


@pytest.fixture(scope="session")
def truths(tmp_path_factory: pytest.TempPathFactory) -> Truths:
    """What Apache read from each of them."""
    return Truths(tmp_path_factory.mktemp("truths"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the table, on whatever worker a test ran, and leaves all of it in `build/`."""
    reports = [one for outcome in ("passed", "failed") for one in terminalreporter.stats.get(outcome, [])]
    properties = [(name, value) for report in reports for name, value in report.user_properties]
    found, opened = loss_table.rows(properties), loss_table.opened(properties)
    if not found and not opened:
        return
    terminalreporter.section("what is lost of the damaged stores")
    if found:
        loss_table.write(found, config.rootpath / "build")
        for line in loss_table.text(found):
            terminalreporter.write_line(line)
        terminalreporter.write_line("Every case is in build/loss.md and build/loss.json.")
    for line in opened:
        terminalreporter.write_line(line)
