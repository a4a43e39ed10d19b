"""Lines made from columns are the lines made from messages, to the last character."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import message, properties
from engine.format.message import Message
from engine.format.message_json import to_json
from engine.inspect.dump.dump import dump_log, dump_log_batches, stored_topic
from engine.log.batch import RecordBatch
from engine.log.scan import Scanner
from rstore_cli.log_lines import LogLines
from tests.conftest import Store
from tests.rstore_cli.conftest import Cli
from tests.support import logs, strategies
from tests.support.wide import examples


def slow(batch: RecordBatch, *, redact: bool, ascii: bool) -> list[str]:  # noqa: A002
    return [
        json.dumps(
            {"kind": "message", **to_json(message.decode(batch.record(i)), place=batch.offset(i), redact=redact)},
            ensure_ascii=ascii,
            separators=(",", ":"),
        )
        + "\n"
        for i in range(len(batch))
    ]


@pytest.mark.wide
@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.tuples(strategies.messages, st.binary(max_size=40), st.booleans()), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
)
def test_whatever_is_stored(put: list[tuple[Message, bytes, bool]], redact: bool, ascii: bool) -> None:  # noqa: A002
    data = b""
    for one, raw, is_moved in put:
        record = message.encode(one, properties.join(one.properties).encode() + properties.SEPARATOR.encode() + raw)
        place = 1 << 40 if is_moved else len(data)
        message.patch(record, 0, queue_offset=5, physical_offset=place, store_timestamp=1)
        data += bytes(record)
    log = logs.MemoryLog({0: bytearray(data)})
    batch = next(event for event in Scanner(log, kernels=False).scan(0) if isinstance(event, RecordBatch))
    assert list(LogLines("message", redact=redact, ascii=ascii).lines(batch)) == slow(batch, redact=redact, ascii=ascii)


@pytest.mark.parametrize("name", ["clean-small", "lmq", "transient-ext"])
def test_of_a_store_and_of_one_topic(name: str, fixture_store: Store, cli: Cli) -> None:
    store = fixture_store(name)
    config = StoreConfig(store_path_root_dir=store)
    batches = [b for b in dump_log_batches(Disk(), config) if isinstance(b, RecordBatch)]
    lines = [line for batch in batches for line in LogLines("message", redact=False, ascii=False).lines(batch)]
    assert lines == [line for batch in batches for line in slow(batch, redact=False, ascii=False)]
    topic = json.loads(lines[-1])["topic"]
    maker = LogLines("message", redact=False, ascii=False)
    wanted = [line for batch in batches for line in maker.lines(batch, stored_topic(topic))]
    assert wanted == [line for line in lines if json.loads(line)["topic"] == topic]
    assert wanted
    ran = cli("--store", store, "dump", "commitlog", "--json", "--topic", topic, "--jobs", "2")
    assert ran.out == "".join(wanted)


@pytest.mark.leaves("checkpoint-missing", "log-damage", "unit-missing")
def test_by_threads_it_is_the_same(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    built = logs.build([Message("T", bytes([i % 251]) * 100_000, i % 3) for i in range(400)], segment_size=1 << 26)
    built.log.files[0][built.offsets[7] + 500] ^= 1
    path = tmp_path / "store" / "commitlog" / ("0" * 20)
    path.parent.mkdir(parents=True)
    path.write_bytes(built.log.files[0])
    config = StoreConfig(store_path_root_dir=tmp_path / "store")

    def rows(jobs: int) -> list[object]:
        found: list[object] = []
        for one in dump_log_batches(Disk(), config, jobs=jobs):
            found += LogLines("", redact=True, ascii=True).lines(one) if isinstance(one, RecordBatch) else [one]
        return found

    plain = rows(1)
    assert len(plain) == 400
    assert rows(3) == plain
    assert len(list(dump_log(Disk(), config))) == 400
