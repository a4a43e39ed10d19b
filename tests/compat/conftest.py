"""The interop tests need Java, Maven and Apache's jars: without them they are skipped, in one sentence."""

from __future__ import annotations

import pytest

from tests.compat import apache


@pytest.fixture(scope="session")
def apache_store() -> None:
    """Apache's store is there to be run."""
    try:
        apache.harness()
    except apache.Missing as missing:
        pytest.skip(str(missing))
