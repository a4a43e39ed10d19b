"""The interop tests need Java, Maven and Apache's jars: without them they are skipped, in one sentence.

At the end of a run: the table of what is lost of the damaged stores (loss_table.py), and that of the client's features
by broker (test_client.py).
"""

from __future__ import annotations

import pytest

from tests.compat import apache, loss_table
from tests.compat.corpora import Bases
from tests.compat.loss import Gives, Truths
from tests.support.patience import requests_are_waited_for

__all__ = ["requests_are_waited_for"]

pytest.register_assert_rewrite("tests.compat.client_features")


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


@pytest.fixture(scope="session")
def gives() -> Gives:
    """What rstore gives out of the repaired ones."""
    return Gives()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the tables, on whatever worker a test ran, and leaves all of what is lost in `build/`."""
    reports = [one for outcome in ("passed", "failed") for one in terminalreporter.stats.get(outcome, [])]
    _features(terminalreporter)
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


def _features(reporter: pytest.TerminalReporter) -> None:
    """What the client can do at which broker."""
    outcomes = {
        tuple(value): outcome
        for outcome in ("passed", "failed")
        for report in reporter.stats.get(outcome, [])
        for name, value in report.user_properties
        if name == "feature"
    }
    if not outcomes:
        return
    reporter.section("the client's features by broker")
    features, peers = (list(dict.fromkeys(names)) for names in zip(*outcomes, strict=True))
    width = max(map(len, features))
    reporter.write_line("  ".join([" " * width, *peers]))
    for feature in features:
        marks = {"passed": "yes", "failed": "no", None: "-"}
        cells = [marks[outcomes.get((feature, peer))].ljust(len(peer)) for peer in peers]
        reporter.write_line("  ".join([feature.ljust(width), *cells]))
