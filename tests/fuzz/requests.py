"""Random requests for every code: a sound one of each, and what becomes of it when fields and bodies are mangled."""

# ruff: noqa: E501 - tables of words

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import orjson

from engine.format import batch, properties
from engine.format.batch import BatchItem
from engine.wire.codes import RequestCode
from engine.wire.command import RemotingCommand, SerializeType
from tests.engine.broker.client import pull_fields, send_fields

TOPICS = ("Fuzzed", "Other", "%RETRY%G", "%DLQ%G", "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC")
GROUPS = ("G", "H", "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER")
VALUES = (
    "", " ", "0", "1", "-1", "2", "8", "12", "18", "-9223372036854775808", "9223372036854775807", "2147483647", "1e3",
    "9" * 400, "٣", "²", "+1", "1_000", "0x10", "NaN", "true", "FALSE", "null", "{}", "[]", "a b", "T@G", "x" * 5000,
    "*", "TAG", "SQL92", "a > 1 AND", "a BETWEEN 1 AND 2", "(" * 3000, "🚀\u0001\u0002", "\u0000", "..", "../../x", "a/b",
    "DefaultCluster", "broker-a", "127.0.0.1:1", *TOPICS, *GROUPS,
)  # fmt: skip
JSON = (
    None, True, False, 0, -1, 1 << 40, 2.5, "", "x", "9" * 400, [], {}, [None], [[]], [{}], {"": None}, {"a": {"b": []}},
    "G", "Fuzzed", [1, "2", None], {"topic": 1, "brokerName": None, "queueId": "x"},
)  # fmt: skip
_PAIRS = (
    {"DELAY": "1"}, {"DELAY": "99"}, {"DELAY": "-1"}, {"DELAY": "²"}, {"TRAN_MSG": "true", "PGROUP": "G"}, {"WAIT": "x"},
    {"TRAN_MSG": "true", "CHECK_IMMUNITY_TIME_IN_SECONDS": "²", "TRANSACTION_CHECK_TIMES": "٣"}, {"KEYS": " a  b "},
    {"REAL_TOPIC": "", "REAL_QID": "²", "DELAY": "1"}, {"REAL_TOPIC": "No/Topic", "REAL_QID": "-1", "TRAN_MSG": "true"},
    {"UNIQ_KEY": "u", "TAGS": "t"}, {"INNER_MULTI_DISPATCH": "a,b"}, {"": ""}, {"a": "\x01"}, {"x" * 40000: "y"},
    {"MSG_TYPE": "reply", "CLUSTER": "x", "REPLY_TO_CLIENT": "c"}, {},
)  # fmt: skip
_NAMES = (
    "topic", "consumerGroup", "group", "queueId", "queueOffset", "offset", "timestamp", "key", "maxNum", "commitOffset",
    "beginTimestamp", "endTimestamp", "groupName", "producerGroup", "clientID", "perm", "readQueueNums", "writeQueueNums",
    "defaultTopic", "topicFilterType", "topicSysFlag", "order", "namespace", "value", "cluster", "brokerName", "statsName",
    "statsKey", "index", "count", "srcGroup", "destGroup", "offline", "isForce", "isOrder", "clientAddr", "compareGroup",
    "filterGroups", "removeOffset", "clientId", "msgId", "originMsgId", "originTopic", "delayLevel", "unitMode",
    "maxReconsumeTimes", "sysFlag", "maxMsgNums", "suspendTimeoutMillis", "subscription", "subVersion", "expressionType",
    "tranStateTableOffset", "commitLogOffset", "commitOrRollback", "fromTransactionCheck", "transactionId", "jstackEnable",
    "reconsumeTimes", "batch", "bornTimestamp", "flag", "properties", "defaultTopicQueueNums", "queueNums", "topicName",
    "brokerAddr", "clusterName", "brokerId", "haServerAddr", "Signature", "AccessKey", "_UNIQUE_KEY_QUERY", "accessKey",
    *"abcdefghijklmno",
)  # fmt: skip

_QUEUE = {"topic": "Fuzzed", "brokerName": "broker-a", "queueId": 0}
_SUBSCRIPTION = {
    "topic": "Fuzzed", "subString": "a || b", "expressionType": "TAG", "subVersion": 1, "tagsSet": ["a"], "codeSet": [97]
}  # fmt: skip
_HEARTBEAT = {
    "clientID": "c",
    "producerDataSet": [{"groupName": "G"}],
    "consumerDataSet": [
        {
            "groupName": "G",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [_SUBSCRIPTION],
        }
    ],
}
_PLACE = {"topic": "Fuzzed", "queueId": "0", "consumerGroup": "G", "group": "G"}
_TOPIC = {
    "topic": "Made", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip
_ITEM = BatchItem(b"body", 0, properties.join({"UNIQ_KEY": "u"}).encode())
_LONG = dict(zip("abcdefghij", ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
                                "bornTimestamp", "flag", "properties", "reconsumeTimes"), strict=True))  # fmt: skip

Sound = tuple[Mapping[str, str], Any]
"""Fields, and a body: bytes, or what is JSON."""


def sound() -> dict[int, Sound]:
    """For each code a request that a client could send."""
    code = RequestCode
    send = send_fields("Fuzzed", 0, properties.join({"TAGS": "a", "KEYS": "k", "UNIQ_KEY": "u"}))
    by_time = {**_PLACE, "timestamp": "1700000000000"}
    found: dict[int, Sound] = {
        code.SEND_MESSAGE: ({_LONG[name]: value for name, value in send.items() if name in _LONG}, b"body"),
        code.SEND_MESSAGE_V2: (send, b"body"),
        code.SEND_BATCH_MESSAGE: ({**send, "m": "true"}, batch.encode([_ITEM, _ITEM])),
        code.SEND_REPLY_MESSAGE_V2: (send, b"body"),
        code.PULL_MESSAGE: (pull_fields("Fuzzed", 0), b""),
        code.LITE_PULL_MESSAGE: (pull_fields("Fuzzed", 0), b""),
        code.HEART_BEAT: ({}, _HEARTBEAT),
        code.UNREGISTER_CLIENT: ({"clientID": "c", "producerGroup": "G", "consumerGroup": "G"}, b""),
        code.CHECK_CLIENT_CONFIG: ({}, {"clientId": "c", "group": "G", "subscriptionData": _SUBSCRIPTION}),
        code.UPDATE_CONSUMER_OFFSET: ({**_PLACE, "commitOffset": "1"}, b""),
        code.CONSUMER_SEND_MSG_BACK: (
            {"offset": "0", "group": "G", "delayLevel": "0", "originMsgId": "x", "originTopic": "Fuzzed"},
            b"",
        ),
        code.END_TRANSACTION: (
            {
                "producerGroup": "G",
                "tranStateTableOffset": "0",
                "commitLogOffset": "0",
                "commitOrRollback": "8",
                "msgId": "u",
                "transactionId": "u",
            },
            b"",
        ),
        code.LOCK_BATCH_MQ: ({}, {"consumerGroup": "G", "clientId": "c", "mqSet": [_QUEUE]}),
        code.UNLOCK_BATCH_MQ: ({}, {"consumerGroup": "G", "clientId": "c", "mqSet": [_QUEUE]}),
        code.SEARCH_OFFSET_BY_TIMESTAMP: (by_time, b""),
        code.VIEW_MESSAGE_BY_ID: ({"offset": "0"}, b""),
        code.QUERY_MESSAGE: (
            {"topic": "Fuzzed", "key": "k", "maxNum": "9", "beginTimestamp": "0", "endTimestamp": str((1 << 63) - 1)},
            b"",
        ),
        code.UPDATE_AND_CREATE_TOPIC: (_TOPIC, b""),
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ({}, {"groupName": "H", "retryQueueNums": 1, "retryMaxTimes": 2}),
        code.DELETE_SUBSCRIPTIONGROUP: ({"groupName": "H", "removeOffset": "true"}, b""),
        code.DELETE_TOPIC_IN_BROKER: ({"topic": "Made"}, b""),
        code.DELETE_TOPIC_IN_NAMESRV: ({"topic": "Made"}, b""),
        code.PUT_KV_CONFIG: ({"namespace": "ORDER_TOPIC_CONFIG", "key": "Fuzzed", "value": "broker-a:4"}, b""),
        code.GET_KV_CONFIG: ({"namespace": "ORDER_TOPIC_CONFIG", "key": "Fuzzed"}, b""),
        code.DELETE_KV_CONFIG: ({"namespace": "ORDER_TOPIC_CONFIG", "key": "Fuzzed"}, b""),
        code.GET_KVLIST_BY_NAMESPACE: ({"namespace": "ORDER_TOPIC_CONFIG"}, b""),
        code.UPDATE_BROKER_CONFIG: ({}, b"fileReservedTime=72\n"),
        code.UPDATE_NAMESRV_CONFIG: ({}, b"a=b\n"),
        code.QUERY_CONSUME_QUEUE: ({**_PLACE, "index": "0", "count": "9"}, b""),
        code.VIEW_BROKER_STATS_DATA: ({"statsName": "TOPIC_PUT_NUMS", "statsKey": "Fuzzed"}, b""),
        code.CLONE_GROUP_OFFSET: ({"srcGroup": "G", "destGroup": "H", "topic": "Fuzzed", "offline": "true"}, b""),
        code.INVOKE_BROKER_TO_RESET_OFFSET: ({**by_time, "isForce": "true"}, b""),
        code.QUERY_CORRECTION_OFFSET: ({**_PLACE, "compareGroup": "H", "filterGroups": "G"}, b""),
    }
    return {int(one): found.get(one, (_PLACE, b"")) for one in RequestCode}


def mangled(chance: random.Random, code: int, kind: SerializeType) -> RemotingCommand:
    """A request of this code with something wrong, or nothing."""
    fields, body = sound()[code]
    ext: dict[str, str] = dict(fields)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
        if ext and chance.random() < 0.3:
            del ext[chance.choice(list(ext))]
        else:
            name = chance.choice(list(ext)) if ext and chance.random() < 0.7 else chance.choice(_NAMES)
            ext[name] = chance.choice(VALUES)
    if "i" in ext and chance.random() < 0.5:
        ext["i"] = properties.join(chance.choice(_PAIRS))
    if not isinstance(body, bytes) or chance.random() < 0.1:
        what = _json_mangled(
            chance, body if not isinstance(body, bytes) else _HEARTBEAT, chance.choice((0, 1, 1, 2, 3))
        )
        body = orjson.dumps(what)
    if chance.random() < 0.25:
        body = _bytes_mangled(chance, body)
    return RemotingCommand(code, 0, 0, None, ext, body, serialize=kind)


def _json_mangled(chance: random.Random, value: Any, times: int) -> Any:
    """The same with some of its parts replaced."""
    found = orjson.loads(orjson.dumps(value))
    for _ in range(times):
        places = list(_places(found))
        if not places:
            return _some(chance)
        holder, at = chance.choice(places)
        holder[at] = _some(chance)
    return found


def _some(chance: random.Random) -> Any:
    return orjson.loads(orjson.dumps(chance.choice(JSON)))


def _places(value: Any) -> Any:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for at, one in list(inside):
        yield value, at
        yield from _places(one)


def _bytes_mangled(chance: random.Random, body: bytes) -> bytes:
    match chance.randrange(5):
        case 0:
            return chance.randbytes(chance.choice((0, 1, 7, 100, 3000)))
        case 1:
            return body[: chance.randrange(len(body) + 1)]
        case 2:
            return b"[" * 20_000
        case 3:
            return b'{"a":' * 20_000
        case _:
            found = bytearray(body or b"x")
            found[chance.randrange(len(found))] = chance.randrange(256)
            return bytes(found)
