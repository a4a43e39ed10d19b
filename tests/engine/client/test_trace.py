"""Traces: the text of Apache's clients, both ways; written beside what is traced, and never in its way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.broker.serve import Daemon
from engine.client import trace_writer
from engine.client.client import ClusterClient
from engine.client.consumer_settings import ConsumeOutcome, ConsumerSettings, LitePullSettings, StartFrom
from engine.client.messages import OutgoingMessage, ReceivedMessage
from engine.client.producer import TransactionState
from engine.client.topic_reader import ReadFrom, TopicReader
from engine.client.trace import (
    TRACE_TOPIC,
    ConsumeCode,
    TracedType,
    TraceKind,
    TraceRecord,
    decode,
    encode,
    keys_of,
)
from tests.engine.client.clusters import PATIENT, client_of, talk

TRACED = replace(PATIENT, trace=True)
FROM_JAVA = (
    "Pub|1700000000000|DefaultRegion|shop|orders|ID1|paid|k1 k2|10.0.0.1:10911|5|12|0|OFFSETID|true#"
    "SubBefore|1700000000100|DefaultRegion|billing|REQ|ID1|2|k1 k2#"
    "SubAfter|REQ|ID1|7|false|k1 k2|4|1700000000107|billing#"
    "EndTransaction|1700000000200|DefaultRegion|shop|orders|ID1|null|null|10.0.0.1:10911|2|TX|COMMIT_MESSAGE|false#"
).replace("|", "\x01").replace("#", "\x02")  # fmt: skip
RECORDS = (
    TraceRecord(
        TraceKind.SENT, "ID1", "shop", 1_700_000_000_000, "DefaultRegion", "orders", "paid", "k1 k2", "10.0.0.1:10911",
        5, 12, TracedType.NORMAL, "OFFSETID",
    ),
    TraceRecord(
        TraceKind.CONSUMING, "ID1", "billing", 1_700_000_000_100, "DefaultRegion", keys="k1 k2", request_id="REQ",
        retries=2,
    ),
    TraceRecord(
        TraceKind.CONSUMED, "ID1", "billing", 1_700_000_000_107, keys="k1 k2", request_id="REQ", cost_ms=7,
        success=False, code=ConsumeCode.FAILED,
    ),
    TraceRecord(
        TraceKind.SETTLED, "ID1", "shop", 1_700_000_000_200, "DefaultRegion", "orders", store_host="10.0.0.1:10911",
        message_type=TracedType.COMMIT, transaction_id="TX", state="COMMIT_MESSAGE",
    ),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _traces_are_written_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes: not what three seconds are enough for."""
    monkeypatch.setattr(trace_writer, "_END_S", 60.0)


def test_the_text_is_javas() -> None:
    assert "".join(map(encode, RECORDS)) == FROM_JAVA
    assert tuple(decode(FROM_JAVA)) == RECORDS
    assert keys_of(RECORDS) == ("ID1", "k1", "k2")


def test_texts_of_older_clients() -> None:
    old = "Pub|1|R|G|T|ID|||h|5|12|0|true#SubAfter|REQ|ID|7|true|k#".replace("|", "\x01").replace("#", "\x02")
    sent, consumed = decode(old)
    assert (sent.success, sent.offset_id, sent.keys) == (True, "", None)
    assert (consumed.group, consumed.time_ms, consumed.keys) == ("", 0, "k")


@given(st.text(alphabet="PubSAfterEndTasio0129\x01\x02", max_size=200) | st.text())
def test_what_is_no_trace_is_passed_over(text: str) -> None:
    assert all(record.kind for record in decode(text))


@given(st.integers(0, len(FROM_JAVA)), st.integers(0, 20))
def test_a_cut_text_keeps_its_whole_records(at: int, length: int) -> None:
    assert len(list(decode(FROM_JAVA[:at] + FROM_JAVA[at + length :]))) <= len(RECORDS)


async def traces(client: ClusterClient) -> list[TraceRecord]:
    records: list[TraceRecord] = []
    async with aclosing(TopicReader(client, TRACE_TOPIC).messages(ReadFrom(first=True))) as messages:
        async for message in messages:
            made = list(decode(message.body.decode()))
            assert set(keys_of(made)) == set(message.keys)
            records += made
    return sorted(records, key=lambda record: record.time_ms)  # the topic has several queues


def test_sends_and_consuming_are_traced(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        outcomes = iter((ConsumeOutcome.LATER, ConsumeOutcome.SUCCESS))
        done = asyncio.Event()

        async def handle(messages: Sequence[ReceivedMessage]) -> ConsumeOutcome:
            outcome = next(outcomes)
            if outcome is ConsumeOutcome.SUCCESS:
                done.set()
            return outcome

        async with client_of(served, instance="traced") as traced:
            sent = await traced.producer("P", TRACED).send(OutgoingMessage("T", b"12345", "tag", ("k1", "k2")))
            settings = ConsumerSettings(start=StartFrom.FIRST_OFFSET, delay_level=1, trace=True)
            async with traced.push_consumer("G", handle, settings) as consumer:
                await consumer.subscribe("T")
                await asyncio.wait_for(done.wait(), 60)
        records = await traces(client)
        first = next(record for record in records if record.kind is TraceKind.SENT)
        assert (first.id, first.topic, first.tags, first.keys) == (sent.id, "T", "tag", "k1 k2")
        assert (first.group, first.body_size, first.offset_id) == ("P", 5, sent.offset_id)
        assert (first.store_host, first.success) == (sent.address, True)
        before = [record for record in records if record.kind is TraceKind.CONSUMING]
        after = [record for record in records if record.kind is TraceKind.CONSUMED]
        assert [(one.id, one.group, one.retries, one.keys) for one in before] == [
            (sent.id, "G", 0, "k1 k2"), (sent.id, "G", 1, "k1 k2")
        ]  # fmt: skip
        assert [one.request_id for one in before] == [one.request_id for one in after]
        assert [(one.success, one.code) for one in after] == [(False, ConsumeCode.FAILED), (True, ConsumeCode.SUCCESS)]

    talk(tmp_path / "s", work)


def test_batches_transactions_and_polls_are_traced(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        async with client_of(served, instance="traced") as traced:
            producer = traced.producer("P", TRACED)
            batch = (await producer.send_batch([OutgoingMessage("T", b"1"), OutgoingMessage("T", b"2")]))[0]
            half, _ = await producer.send_transaction(OutgoingMessage("X", b"3"), lambda _: TransactionState.ROLLBACK)
            delayed = await producer.send(OutgoingMessage("T", b"4", delay_level=1))
            settings = LitePullSettings(start=StartFrom.FIRST_OFFSET, poll_s=60, trace=True)
            async with traced.lite_pull_consumer("L", settings) as consumer:
                await consumer.subscribe("T")
                await consumer.poll()
        records = await traces(client)
        sent = [record for record in records if record.kind is TraceKind.SENT]
        one, two = batch.id.split(",")
        assert {record.id: record.message_type for record in sent} == {
            one: TracedType.NORMAL, two: TracedType.NORMAL, half.id: TracedType.HALF, delayed.id: TracedType.DELAYED
        }  # fmt: skip
        settled = next(record for record in records if record.kind is TraceKind.SETTLED)
        assert (settled.id, settled.state, settled.topic) == (half.id, "ROLLBACK_MESSAGE", "X")
        assert {"L"} == {record.group for record in records if record.kind is TraceKind.CONSUMED}

    talk(tmp_path / "s", work)


def test_a_broker_may_not_want_it(tmp_path: Path) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        sent = await client.producer("P", PATIENT).send(OutgoingMessage("T", b"1"))
        trace = client.producer("Q", TRACED)._trace
        assert trace is not None
        trace.sent([OutgoingMessage("T", b"1")], replace(sent, is_traced=False), 0)
        assert not client.tracer("Q", "PRODUCE")._waiting

    talk(tmp_path / "s", work)


def test_what_can_not_be_kept_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(served: Daemon, client: ClusterClient) -> None:
        async with client_of(served, instance="traced") as traced:
            writer = traced.tracer("P", "PRODUCE")
            writer.note([RECORDS[0]] * 3000)
            assert writer.discarded == 3000 - 2048
        assert len(await traces(client)) == 2048

    talk(tmp_path / "s", work)
    assert "952 records of traces were not written" in caplog.text
