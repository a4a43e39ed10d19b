"""aclStrict: an account reads, changes and locks what it has a right on, and nothing of others; off, it is Apache's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.broker.acl.rights import Right
from engine.broker.requests.table import RIGHTS
from engine.broker.serve import Daemon
from engine.config import StoreConfig
from engine.format import properties
from engine.format.message import Message, decode, encode, parse_msg_id, patch
from engine.wire.codes import RequestCode
from tests.engine.broker.acl.accounts import MINE, OPERATOR, THEIRS, acl_file, ask, is_denied
from tests.engine.broker.client import SMALL, Client, daemon, pull_fields, send_fields
from tests.engine.opening import assert_sound

C = RequestCode
SECRET = b"the plan of the others"
STRICT = {code: right for code, right in RIGHTS.items() if right.strict or right.strict_admin}


def run(tmp_path: Path, work: Any, **settings: object) -> None:
    async def all_of_it() -> None:
        async with daemon(tmp_path / "s", acl_enable=True, acl_file=acl_file(tmp_path), **settings) as served:
            client = await Client.to(served.listening.broker)
            await work(served, client)

    asyncio.run(all_of_it())
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))


async def put(client: Client, key: str, topic: str, body: bytes = SECRET, pairs: str = "") -> str:
    """The offset message id of a message that is there for everybody."""
    sent = await ask(client, key, C.SEND_MESSAGE_V2, send_fields(topic, 0, pairs), body)
    assert sent.code == 0, sent.remark
    return str(sent.fields["msgId"])


async def dispatched(served: Daemon) -> None:
    while served.broker.store.dispatch_lag:
        await asyncio.sleep(0.001)


def about(topic: str, group: str, msg_id: str) -> dict[int, tuple[dict[str, str], bytes]]:
    """A request of each code on that topic, group and message."""
    offset = str(parse_msg_id(msg_id)[1])
    place = {"topic": topic, "queueId": "0", "consumerGroup": group, "group": group}
    queue = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
    lock = orjson.dumps({"consumerGroup": group, "clientId": "c", "mqSet": [queue]})
    end = {"producerGroup": "PG", "tranStateTableOffset": "0", "commitLogOffset": offset, "commitOrRollback": "8"}
    acks = orjson.dumps({"brokerName": "broker-a", "acks": [{"c": group, "t": topic, "r": "0", "so": 0, "b": "AQ=="}]})
    special: dict[int, tuple[dict[str, str], bytes]] = {
        C.CONSUMER_SEND_MSG_BACK: ({"offset": offset, "group": group, "delayLevel": "1"}, b""),
        C.END_TRANSACTION: (end, b""),
        C.VIEW_MESSAGE_BY_ID: ({"offset": offset}, b""),
        C.SEARCH_OFFSET_BY_TIMESTAMP: ({**place, "timestamp": "0"}, b""),
        C.QUERY_CONSUME_QUEUE: ({**place, "index": "0", "count": "9"}, b""),
        C.RESUME_CHECK_HALF_MESSAGE: ({"msgId": msg_id}, b""),
        C.BATCH_ACK_MESSAGE: ({}, acks),
        C.QUERY_ASSIGNMENT: ({}, orjson.dumps({"topic": topic, "consumerGroup": group, "clientId": "c"})),
        C.LOCK_BATCH_MQ: ({}, lock),
        C.UNLOCK_BATCH_MQ: ({}, lock),
        C.GET_CONSUMER_RUNNING_INFO: ({**place, "clientId": "c"}, b""),
        C.CONSUME_MESSAGE_DIRECTLY: ({**place, "clientId": "c", "msgId": msg_id}, b""),
        C.QUERY_CORRECTION_OFFSET: ({**place, "compareGroup": group}, b""),
        C.CLONE_GROUP_OFFSET: ({"topic": topic, "srcGroup": group, "destGroup": group, "offline": "true"}, b""),
        C.INVOKE_BROKER_TO_RESET_OFFSET: ({**place, "timestamp": "0", "isForce": "true"}, b""),
        C.GET_PRODUCER_CONNECTION_LIST: ({"producerGroup": group}, b""),
    }
    return {int(code): special.get(code, (place, b"")) for code in STRICT}


async def denied_codes(client: Client, key: str, asked: Mapping[int, tuple[dict[str, str], bytes]]) -> set[int]:
    answers = {code: await ask(client, key, code, ext, body) for code, (ext, body) in asked.items()}
    return {code for code, answer in answers.items() if is_denied(answer)}


def admins_only() -> set[int]:
    return {int(code) for code, right in STRICT.items() if right.strict_admin}


def test_an_account_gets_nothing_of_others(tmp_path: Path) -> None:
    """Every code in which the table asks for more than Apache, about another's topic, group and message."""

    async def work(served: Daemon, client: Client) -> None:
        theirs, mine = await put(client, THEIRS, "Secret"), await put(client, MINE, "Mine")
        await dispatched(served)
        asked = about("Secret", "victim", theirs)
        assert await denied_codes(client, MINE, asked) == asked.keys()
        assert await denied_codes(client, OPERATOR, asked) == set()
        assert await denied_codes(client, THEIRS, asked) == admins_only()
        assert await denied_codes(client, MINE, about("Mine", "mygroup", mine)) == admins_only()

    run(tmp_path, work)


def test_without_it_rights_are_apaches(tmp_path: Path) -> None:
    async def work(served: Daemon, client: Client) -> None:
        theirs = await put(client, THEIRS, "Secret")
        await dispatched(served)
        asked = about("Secret", "victim", theirs)
        assert await denied_codes(client, MINE, asked) == {C.CONSUMER_SEND_MSG_BACK}  # SUB on the group, as Apache
        view = await ask(client, MINE, C.VIEW_MESSAGE_BY_ID, *asked[C.VIEW_MESSAGE_BY_ID])
        assert decode(view.body).body == SECRET

    run(tmp_path, work, acl_strict=False)


def test_each_demand_alone_is_enough_to_refuse(tmp_path: Path) -> None:
    """One's own group does not open another's topic, nor one's own topic another's group."""

    async def work(served: Daemon, client: Client) -> None:
        theirs, mine = await put(client, THEIRS, "Secret"), await put(client, MINE, "Mine")
        await dispatched(served)
        mixed = (about("Secret", "mygroup", theirs), about("Mine", "victim", mine))
        for one in mixed:
            refused = await denied_codes(client, MINE, one)
            for code, right in STRICT.items():
                if not right.strict_admin and len(everything_asked(right)) > 1:
                    assert code in refused, RequestCode(code).name
        back = {"offset": str(parse_msg_id(theirs)[1]), "group": "mygroup", "delayLevel": "1"}
        sent_back = await ask(client, MINE, C.CONSUMER_SEND_MSG_BACK, back)
        assert "the message's topic" in (sent_back.remark or "")
        assert "Secret" not in (sent_back.remark or ""), "the denial names a topic that the account did not know"

    run(tmp_path, work)


def everything_asked(right: Right) -> set[str]:
    """topic, group: what the demands of a right are about."""
    words = " ".join(demand.says for demand in right.strict)
    return set(re.findall(r"\b(topic|group)\b", words.replace("groups", "group")))


def test_a_message_that_waits_is_its_topics(tmp_path: Path) -> None:
    """A delayed message lies in SCHEDULE_TOPIC_XXXX, a half one in RMQ_SYS_TRANS_HALF_TOPIC: whose is it?"""

    async def work(served: Daemon, client: Client) -> None:
        delayed = await put(client, THEIRS, "Secret", pairs=properties.join({"DELAY": "18"}))
        half = await put(client, THEIRS, "Secret", pairs=properties.join({"TRAN_MSG": "true", "PGROUP": "PG"}))
        own = await put(client, MINE, "Mine", pairs=properties.join({"TRAN_MSG": "true", "PGROUP": "PG"}))
        await dispatched(served)
        for msg_id in (delayed, half):
            ext = {"offset": str(parse_msg_id(msg_id)[1])}
            assert is_denied(await ask(client, MINE, C.VIEW_MESSAGE_BY_ID, ext))
            assert (await ask(client, THEIRS, C.VIEW_MESSAGE_BY_ID, ext)).code == 0
        for key, msg_id, may in ((MINE, half, False), (MINE, own, True), (THEIRS, half, True)):
            record = await ask(client, OPERATOR, C.VIEW_MESSAGE_BY_ID, {"offset": str(parse_msg_id(msg_id)[1])})
            end = {"producerGroup": "PG", "tranStateTableOffset": str(decode(record.body).queue_offset),
                   "commitLogOffset": str(parse_msg_id(msg_id)[1]), "commitOrRollback": "8"}  # fmt: skip
            answer = await ask(client, key, C.END_TRANSACTION, end)
            assert is_denied(answer) is not may
            assert (answer.code == 0) is may

    run(tmp_path, work)


def test_a_transaction_ends_before_dispatch_has_seen_it(tmp_path: Path) -> None:
    """A producer commits at once; a message counts as one that begins there, though no queue has it yet."""

    async def work(served: Daemon, client: Client) -> None:
        dispatch = served.broker.store.dispatch
        for _ in range(3):
            with dispatch.between_batches():
                await put(client, MINE, "Mine")
                half = await put(client, MINE, "Mine", pairs=properties.join({"TRAN_MSG": "true", "PGROUP": "PG"}))
                offset = parse_msg_id(half)[1]
                assert dispatch.position < offset
                view = await ask(client, MINE, C.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
                assert view.code == 0, view.remark
                end = {"producerGroup": "PG", "tranStateTableOffset": str(decode(view.body).queue_offset),
                       "commitLogOffset": str(offset), "commitOrRollback": "8"}  # fmt: skip
                assert (await ask(client, MINE, C.END_TRANSACTION, end)).code == 0
            await dispatched(served)

    run(tmp_path, work)


@pytest.mark.parametrize("held", [False, True], ids=["dispatched", "not dispatched"])
def test_a_record_inside_of_a_body_opens_nothing(tmp_path: Path, held: bool) -> None:
    """One that claims the bytes of the messages after it as its properties, under a topic of one's own."""

    async def work(served: Daemon, client: Client) -> None:
        store = served.broker.store
        await put(client, MINE, "Mine")
        await dispatched(served)
        inner = store.log.max_offset + 88
        forged = encode(Message("Mine", b"x", properties={"a": "b" * 300}))
        patch(forged, 0, queue_offset=1, physical_offset=inner, store_timestamp=1)
        ended = bytes(forged[: forged.index(b"b" * 300)])  # the rest of its properties is what comes next in the log
        with store.dispatch.between_batches() if held else served_as_ever():
            await put(client, MINE, "Mine", ended)
            for _ in range(3):
                await put(client, THEIRS, "Secret")
            if not held:
                await dispatched(served)
            record = bytes(store.record_at(inner) or b"")
            assert (SECRET in record, decode(record).topic) == (True, "Mine"), "the forgery is none"
            for code, ext in (
                (C.VIEW_MESSAGE_BY_ID, {"offset": str(inner)}),
                (C.CONSUMER_SEND_MSG_BACK, {"offset": str(inner), "group": "mygroup", "delayLevel": "1"}),
                (C.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "mygroup", "clientId": "c",
                                              "msgId": decode(record).msg_id}),
            ):  # fmt: skip
                answer = await ask(client, MINE, code, ext)
                assert is_denied(answer), RequestCode(code).name
                assert SECRET not in bytes(answer.body)

    run(tmp_path, work)


class served_as_ever:  # noqa: N801 - stands where a lock stands otherwise
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


@pytest.mark.leaves("config-missing")  # messages of a retry topic, and nobody has consumed yet
def test_dead_letters_are_their_groups(tmp_path: Path) -> None:
    """%DLQ% of a group: without an entry of its own, a topic's default right is not enough."""
    text = "accounts:\n" + "".join(
        f"  - {{accessKey: {name}, secretKey: 12345678, defaultTopicPerm: PUB|SUB, {more}}}\n"
        for name, more in (
            ("account-reader", "groupPerms: [readers=SUB]"),
            ("account-owner", "groupPerms: [readers=SUB, victim=SUB]"),
            ("account-undertaker", "groupPerms: [readers=SUB], topicPerms: ['%DLQ%victim=PUB|SUB']"),
        )
    )

    async def all_of_it() -> None:
        file = acl_file(tmp_path, text)
        async with daemon(tmp_path / "s", acl_enable=True, acl_file=file) as served:
            client = await Client.to(served.listening.broker)
            may = {}
            for key in ("account-reader", "account-owner", "account-undertaker"):
                sent = await ask(client, key, C.SEND_MESSAGE_V2, send_fields("%DLQ%victim"), b"x")
                pulled = await ask(client, key, C.PULL_MESSAGE, pull_fields("%DLQ%victim", 0, "readers"))
                may[key] = (not is_denied(sent), not is_denied(pulled))
            assert may == {
                "account-reader": (False, False),
                "account-owner": (True, True),
                "account-undertaker": (True, True),
            }

    asyncio.run(all_of_it())


@pytest.mark.leaves("config-missing")  # messages of a retry topic, and nobody has consumed yet
def test_retries_of_another_group_take_no_message(tmp_path: Path) -> None:
    async def work(served: Daemon, client: Client) -> None:
        del served
        long = {"producerGroup": "PG", "topic": "%RETRY%victim", "group": "mygroup", "defaultTopic": "TBW102",
                "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0",
                "properties": "", "reconsumeTimes": "0", "unitMode": "false"}  # fmt: skip
        for code, ext in (
            (C.SEND_MESSAGE_V2, send_fields("%RETRY%victim", a="mygroup")),
            (C.SEND_BATCH_MESSAGE, send_fields("%RETRY%victim", a="mygroup")),
            (C.SEND_MESSAGE, long),
        ):
            answer = await ask(client, MINE, code, ext, b"x")
            assert is_denied(answer)
            assert (answer.remark or "").endswith("No default permission for group:victim")
        assert not is_denied(await ask(client, MINE, C.SEND_MESSAGE_V2, send_fields("%RETRY%mygroup", a="X"), b"x"))

    run(tmp_path, work)
