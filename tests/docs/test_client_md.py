"""CLIENT.md: its examples run, and its tables name what there is."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine import errors
from engine.client.client import ClientConfig
from engine.client.consumer_settings import ConsumerSettings, LitePullSettings
from engine.client.lite_pull_consumer import LitePullConsumer
from engine.client.producer import Producer
from engine.errors import RStoreError
from tests.compat.client_features import FEATURES
from tests.compat.test_client import PEERS
from tests.docs.markdown import tables
from tests.engine.broker.client import daemon

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "engine" / "client" / "CLIENT.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def column(name: str) -> set[str]:
    """The words in code marks of a table's column of that name."""
    rows = [row for table in tables(PAGE, marks=True) for row in table if name in row]
    assert rows
    return {word.partition("(")[0] for row in rows for word in re.findall(r"`([^`]+)`", row[name])}


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_run(number: int, tmp_path: Path) -> None:
    expected = (r"SEND_OK [0-9A-F]{32} \d\none book paid \('order-1',\)\n", r"SEND_OK COMMIT\n", r"one book 0\n1 1\n")

    async def run() -> str:
        async with daemon(tmp_path / "s") as served:
            names = served.listening.names
            assert names is not None
            program = EXAMPLES[number].replace("127.0.0.1:9876", names)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            said, _ = await process.communicate()
            return said.decode()

    assert re.fullmatch(expected[number], asyncio.run(run()))


@pytest.mark.parametrize("settings", [ClientConfig, ConsumerSettings, LitePullSettings])
def test_tables_name_every_setting(settings: type) -> None:
    names = {field.name for field in dataclasses.fields(settings)}
    told = column(f"`{settings.__name__}`")
    assert told <= names
    assert names - told <= {"persist_s", "rebalance_s", "patience_s", "offsets_in"}


def test_calls_are_those_of_a_producer() -> None:
    assert {name for name in vars(Producer) if name.startswith(("send", "request"))} <= column("call")


def test_calls_are_those_of_a_lite_pull_consumer() -> None:
    own = {name for name in vars(LitePullConsumer) if not name.startswith("_")} - {"begin_at"}
    assert own <= column("lite pull")


def test_errors_have_their_codes() -> None:
    rows = [row for table in tables(PAGE) for row in table if "error" in row]
    for row in rows:
        kind = getattr(errors, row["error"])
        assert issubclass(kind, RStoreError)
        assert (kind.code, str(kind.exit_code)) == (row["code"], row["exit"])


def test_the_table_of_brokers_has_every_feature() -> None:
    (table,) = (table for table in tables(PAGE) if "feature" in table[0])
    assert [row["feature"] for row in table] == list(FEATURES)
    assert {name: {row[name] for row in table} for name in table[0]} == {
        "feature": set(FEATURES),
        **{peer: {"yes"} for peer in PEERS},
    }
