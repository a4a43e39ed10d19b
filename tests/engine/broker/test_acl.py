"""The ACL: patterns of addresses, files and their errors, judgements, changes; and a daemon that is guarded."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from engine.broker.acl import accounts
from engine.broker.acl.addresses import BadPattern, pack, parse
from engine.broker.acl.files import AclChangeFailed, AclFiles
from engine.broker.acl.guard import Denied, Guard
from engine.broker.acl.rights import Perm
from engine.broker.settings.broker_settings import BrokerSettings
from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.wire.codes import RequestCode
from engine.wire.command import RemotingCommand
from engine.wire.signing import signature
from tests.engine.broker.client import Client, daemon, pull_fields, send_fields

HERE, ELSEWHERE = pack("127.0.0.1"), pack("10.1.2.3")
LOG = logging.getLogger("test")
FILE = """\
# who may do what
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: RocketMQ  # the usual one
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      - groupA=DENY
      - groupB=PUB|SUB
  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""


@pytest.mark.parametrize(
    ("pattern", "meant", "others"),
    [
        ("", [], ["1.2.3.4"]),
        ("*", ["1.2.3.4", "::1"], []),
        ("*.*.*.*", ["1.2.3.4"], []),
        ("1.2.3.4", ["1.2.3.4"], ["1.2.3.5", "::1"]),
        ("1.2.3.{4,6}", ["1.2.3.4", "1.2.3.6"], ["1.2.3.5"]),
        ("1.2.3.4,::7", ["1.2.3.4", "::7"], ["::8"]),
        ("1.2.3-5.*", ["1.2.3.0", "1.2.5.255"], ["1.2.2.9", "1.2.6.0", "1.3.4.1"]),
        ("1.*.*.*", ["1.9.9.9"], ["2.9.9.9"]),
        ("1.*.3.4", ["1.7.3.4"], ["1.7.3.5"]),
        ("10.0.0.0-9", ["10.0.0.0", "10.0.0.9"], ["10.0.0.10", "110.0.0.1"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1"], ["::2"]),
        ("fe80::{1,a}", ["fe80::1", "fe80::A"], ["fe80::2"]),
        ("2::ac5:78:1-200:*", ["2:0:0:0:ac5:78:1:0", "2::ac5:78:200:ffff"], ["2::ac5:78:201:0", "3::ac5:78:1:1"]),
        ("2::ac5:78:*", ["2::ac5:78:7"], ["2::ac5:79:7", "1.2.3.4"]),
    ],
)
def test_patterns_of_addresses(pattern: str, meant: list[str], others: list[str]) -> None:
    found = parse(pattern)
    assert [one for one in meant if not found.matches(pack(one))] == []
    assert [one for one in others if found.matches(pack(one))] == []


@pytest.mark.parametrize(
    "pattern",
    ["1.2.3", "1.2.3.256", "1.2.3.4-2", "1.2.*", "1.2.3.-4", "a.b.c.*", "1.2.{3,4}", "1.2.3.{4,x}", "x", "::1::*"],
)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BadPattern):
        parse(pattern)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("accounts:\n  - accessKey: [\n", 3, "not YAML"),
        ("accounts: 7\n", 1, "expected a list"),
        ("- a\n", None, "expected a mapping"),
        ("accounts:\n  - 7\n", 2, "an account must be a mapping"),
        ("accounts:\n  - accessKey: abc\n    secretKey: 12345678\n", 2, "longer than 6"),
        ("accounts:\n  - accessKey: abcdefg\n", 2, "longer than 6"),
        ("globalWhiteRemoteAddresses:\n  - 10.0.0.1\n  - 10.0.0\n", 3, "is not an IP address"),
        ("accounts:\n  - accessKey: abcdefg\n    secretKey: 12345678\n    topicPerms:\n      - a\n", 5, "of the form"),
        ("accounts:\n  - accessKey: abcdefg\n    secretKey: 12345678\n    whiteRemoteAddress: x\n", 2, "not an IP"),
        ("dataVersion:\n  - counter: x\n", 2, "must be numbers"),
        ("accounts: !!python/object:os.system {}\n", None, ""),
        ("a: 1\na: 2\n", 2, "duplicate"),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, text: str, line: int | None, what: str) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        files(file).load()
    assert caught.value.path == str(file)
    assert what in caught.value.message
    assert line is None or f"line {line}:" in caught.value.message
    assert "\n" not in str(caught.value)


def files(path: Path) -> AclFiles:
    return AclFiles(Disk(), str(path), str(path.parent / "acl"), lambda: 5, LOG)


def loaded(tmp_path: Path, text: str = FILE) -> AclFiles:
    (tmp_path / "plain_acl.yml").write_text(text)
    found = files(tmp_path / "plain_acl.yml")
    found.load()
    return found


def asked(code: int, ext: Mapping[str, str] | None, body: bytes = b"", key: str = "RocketMQ") -> RemotingCommand:
    """A signed request."""
    fields = {**(ext or {}), "AccessKey": key}
    return RemotingCommand(code, ext={**fields, "Signature": signature(fields, body, b"12345678")}, body=body)


def test_the_files_word_for_word(tmp_path: Path) -> None:
    (tmp_path / "acl" / "deep").mkdir(parents=True)
    other = "accounts:\n  - {accessKey: abcdefg, secretKey: hijklmn, admin: yes, defaultTopicPerm: PUBS}\n"
    (tmp_path / "acl" / "deep" / "more.yaml").write_text(other + "  - {accessKey: RocketMQ, secretKey: otherother}\n")
    (tmp_path / "acl" / "tools.yml").write_text("accessKey: x\n")
    (tmp_path / "acl" / "notes.txt").write_text("[")
    table = loaded(tmp_path).table
    assert table.accounts.keys() == {"RocketMQ", "rocketmq2", "abcdefg"}
    assert table.accounts["RocketMQ"].secret_key == b"otherother"  # those of the directory come first
    assert (table.accounts["abcdefg"].admin, table.accounts["abcdefg"].default_topic) == (True, Perm.DENY)
    assert table.accounts["rocketmq2"].rights == {}
    assert "12345678" not in repr(table.accounts)
    file = accounts.read(FILE, "f", 1)
    assert file.accounts[0].rights["%RETRY%groupB"] == Perm.PUB | Perm.SUB
    assert file.accounts[0].rights["topicA"] == Perm.DENY


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="every request would be refused"):
        files(tmp_path / "plain_acl.yml").load()
    with pytest.raises(InvalidArgument, match="aclEnable without a directory"):
        BrokerSettings(acl_enable=True).acl_paths()
    assert BrokerSettings.of({"rocketmqHome": "/r"}).acl_paths() == ("/r/conf/plain_acl.yml", "/r/conf/acl")
    assert BrokerSettings(acl_file="/a/b.yml").acl_paths() == ("/a/b.yml", "/a/acl")


HEARTBEAT = orjson.dumps(
    {"consumerDataSet": [{"groupName": "groupC", "subscriptionDataSet": [{"topic": "topicB"}]}], "producerDataSet": []}
)
NOTHING = "No default permission for "


@pytest.mark.parametrize(
    ("code", "ext", "why"),
    [
        (310, {"b": "topicB", "a": "P"}, None),
        (310, {"b": "topicC"}, NOTHING + "topic:topicC"),
        (310, {"b": "other"}, NOTHING + "topic:other"),
        (310, {"b": "%RETRY%x", "a": "groupA"}, None),
        (310, {"b": "%RETRY%groupA", "a": "groupB"}, NOTHING + "group:groupA"),
        (320, {"b": "%RETRY%groupA", "a": "groupB"}, NOTHING + "group:groupA"),
        (310, {"b": "%DLQ%groupA", "a": "groupB"}, NOTHING + "topic:%DLQ%groupA"),
        (310, {"b": "RMQ_SYS_TRACE_TOPIC"}, None),
        (320, {"b": "topicA"}, NOTHING + "topic:topicA"),
        (324, {"topic": "topicA"}, NOTHING + "topic:topicA"),
        (325, {"b": "topicA"}, NOTHING + "topic:topicA"),
        (325, {"b": "c_REPLY_TOPIC", "topic": "topicA"}, NOTHING + "topic:topicA"),
        (325, {"b": "c_REPLY_TOPIC"}, None),
        (325, {"b": "topicA", "topic": "RMQ_SYS_TRACE_TOPIC"}, NOTHING + "topic:topicA"),
        (325, {"topic": "RMQ_SYS_TRACE_TOPIC", "b": "topicA"}, NOTHING + "topic:topicA"),
        (10, {"topic": "topicA"}, NOTHING + "topic:topicA"),
        (10, {"topic": "%RETRY%groupA"}, NOTHING + "group:groupA"),
        (10, {"topic": "%RETRY%groupA", "group": "groupB", "producerGroup": "groupB"}, NOTHING + "group:groupA"),
        (10, {"topic": "%RETRY%any"}, None),
        (11, {"topic": "topicB", "consumerGroup": "groupB"}, None),
        (11, {"topic": "topicB", "consumerGroup": "groupA"}, NOTHING + "group:groupA"),
        (361, {"topic": "topicA", "consumerGroup": "groupB"}, NOTHING + "topic:topicA"),
        (12, {"topic": "topicA"}, NOTHING + "topic:topicA"),
        (15, {"topic": "topicC", "consumerGroup": "groupB"}, None),
        (35, {"consumerGroup": "groupA"}, NOTHING + "group:groupA"),
        (35, {"clientID": "c"}, None),
        (36, {"group": "groupA", "offset": "0"}, NOTHING + "group:groupA"),
        (38, {"consumerGroup": "groupA"}, NOTHING + "group:groupA"),
        (37, {"producerGroup": "x", "commitLogOffset": "0"}, None),
        (17, {"topic": "T"}, "Need admin permission for request code=17, but accessKey=RocketMQ is not"),
        (50, {"accessKey": "mine"}, "Need admin permission for request code=50, but accessKey=RocketMQ is not"),
    ],
)
def test_rights(tmp_path: Path, code: int, ext: dict[str, str], why: str | None) -> None:
    guard = Guard(loaded(tmp_path), LOG)
    if why is None:
        guard.check(HERE, asked(code, ext))
    else:
        with pytest.raises(Denied) as denied:
            guard.check(HERE, asked(code, ext))
        assert str(denied.value) == why
    guard.check(HERE, asked(code, ext, key="rocketmq2"))
    guard.check(pack("10.10.103.7"), RemotingCommand(code, ext=ext))
    guard.check(pack("192.168.1.9"), RemotingCommand(code, ext={**ext, "AccessKey": "rocketmq2"}))


def test_heartbeats(tmp_path: Path) -> None:
    guard = Guard(loaded(tmp_path), LOG)
    guard.check(HERE, asked(34, None, HEARTBEAT))
    guard.check(HERE, asked(34, None, b'{"producerDataSet":[{"groupName":"P"}],"consumerDataSet":null}'))
    escaped = b'{"\\u0063onsumerDataSet":[],' + HEARTBEAT.replace(b"groupC", b"groupA")[1:]
    for body in (
        escaped,
        HEARTBEAT.replace(b"groupC", b"groupA"),
        HEARTBEAT.replace(b"topicB", b"topicX"),
        b"[]",
        b"{",
        b"7",
    ):
        with pytest.raises(Denied):
            guard.check(HERE, asked(34, None, body))


def test_signatures(tmp_path: Path) -> None:
    guard = Guard(loaded(tmp_path), LOG)
    good = asked(310, {"b": "topicB"}, b"body")
    guard.check(HERE, good)
    ext = dict(good.fields)
    for request, why in (
        (good._replace(body=b"bodY"), "Check signature failed for accessKey=RocketMQ"),
        (good._replace(ext=ext | {"b": "topicC"}), "Check signature failed for accessKey=RocketMQ"),
        (good._replace(ext=ext | {"Signature": "\u00e4"}), "Check signature failed for accessKey=RocketMQ"),
        (good._replace(ext={"b": "topicB", "AccessKey": "RocketMQ"}), "Check signature failed for accessKey=RocketMQ"),
        (good._replace(ext=ext | {"AccessKey": "nobody"}), "No acl config for nobody"),
        (good._replace(ext=None), "No accessKey is configured"),
    ):
        with pytest.raises(Denied) as denied:
            guard.check(HERE, request)
        assert str(denied.value) == why
    query = {"topic": "topicB", "_UNIQUE_KEY_QUERY": "true", "AccessKey": "RocketMQ"}
    for flag in (False, True):
        signed = signature(query, b"", b"12345678", query_flag=flag)
        guard.check(HERE, RemotingCommand(12, ext={**query, "Signature": signed}))


def test_a_signature_is_apaches() -> None:
    """As openssl has it: the values sorted by their names, and the body."""
    ext = {"b": "2", "a": "1", "Signature": "x", "AccessKey": "k"}
    assert signature(ext, b"body", b"secret") == "qV1+gazDwOYlRYwcME4hA4wRnN0="


def test_a_file_that_changes_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = loaded(tmp_path)
    path = tmp_path / "plain_acl.yml"
    assert not found.look()
    path.write_text(FILE.replace("rocketmq2", "rocketmq3"))
    assert found.look()
    assert "rocketmq3" in found.table.accounts
    path.write_text(FILE + "  - [")
    with caplog.at_level(logging.ERROR):
        assert not found.look()
        assert not found.look()
    assert "rocketmq3" in found.table.accounts
    assert len(caplog.records) == 1
    assert "line 22" in caplog.records[0].why  # type: ignore[attr-defined]
    (tmp_path / "acl").mkdir()
    path.write_text(FILE)
    (tmp_path / "acl" / "a.yml").write_text("accounts:\n  - {accessKey: abcdefg, secretKey: hijklmn}\n")
    assert found.look()
    assert "abcdefg" in found.table.accounts
    path.unlink()
    assert found.look()
    assert found.table.accounts.keys() == {"abcdefg"}


def test_changes_leave_the_rest_of_the_file_alone(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    path = tmp_path / "plain_acl.yml"
    path.chmod(0o600)
    guard = Guard(found, LOG)
    new = {
        "accessKey": "newcomer",
        "secretKey": "12345678",
        "admin": False,
        "topicPerms": ["T=PUB"],
        "groupPerms": None,
    }
    found.put_account(new)
    guard.check(HERE, asked(310, {"b": "T"}, key="newcomer"))
    found.put_account({**new, "topicPerms": ["T=SUB"], "defaultGroupPerm": "SUB"})
    with pytest.raises(Denied):
        guard.check(HERE, asked(310, {"b": "T"}, key="newcomer"))
    guard.check(HERE, asked(310, {"b": "topicB"}))
    assert found.put_white(["10.1.2.3", "::1"], None)
    guard.check(ELSEWHERE, RemotingCommand(17))
    assert not found.put_white(["10.1.2.3"], "/etc/passwd")
    assert found.delete_account("newcomer")
    assert not found.delete_account("newcomer")
    text = path.read_text()
    assert "# who may do what" in text
    assert "# the usual one" in text
    assert "newcomer" not in text
    assert found.version() == {"counter": 4, "timestamp": 5} == found.versions()[str(path)]
    assert os.stat(path).st_mode & 0o777 == 0o600
    for wrong in (
        {**new, "accessKey": "short"}, {**new, "topicPerms": ["T"]}, {**new, "topicPerms": ["T=ALL"]},
        {**new, "whiteRemoteAddress": "x"},
    ):  # fmt: skip
        with pytest.raises(AclChangeFailed):
            found.put_account(wrong)
    assert path.read_text() == text
    path.write_text("[")
    with pytest.raises(AclChangeFailed, match="not YAML"):
        found.put_account(new)
    assert path.read_text() == "["


def test_the_first_account_of_an_empty_file(tmp_path: Path) -> None:
    found = loaded(tmp_path, "")
    found.put_account({"accessKey": "newcomer", "secretKey": "12345678", "admin": True})
    Guard(found, LOG).check(HERE, asked(17, {"topic": "T"}, key="newcomer"))


def test_a_guarded_daemon(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(FILE)

    async def ask(client: Client, code: int, ext: dict[str, str], body: bytes = b"", key: str = "RocketMQ") -> int:
        return (await client.ask(code, dict(asked(code, ext, body, key).fields), body)).code

    async def run() -> None:
        async with daemon(tmp_path / "s", acl_enable=True, acl_file=str(file)) as found:
            assert found.listening.names is not None
            client, names = await Client.to(found.listening.broker), await Client.to(found.listening.names)
            assert (await names.ask(105, {"topic": "TBW102"})).code == 0  # a name service asks nobody who he is
            for _ in range(3):
                refused = await client.put("topicB", b"x")
            assert refused.code == 1
            assert refused.remark == "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"
            assert await ask(client, 310, send_fields("topicB"), b"x") == 0
            assert await ask(client, 310, send_fields("topicC"), b"x") == 1
            assert await ask(client, 11, pull_fields("topicB", 0, "groupB")) in (0, 19)
            assert await ask(client, 11, pull_fields("topicB", 0, "groupA")) == 1
            account = {"accessKey": "newcomer", "secretKey": "12345678", "topicPerms": "topicC=PUB,topicD=PUB|SUB"}
            assert await ask(client, 50, account) == 1
            assert await ask(client, 50, account, key="rocketmq2") == 0
            assert await ask(client, 310, send_fields("topicC"), b"x", "newcomer") == 0
            answer = await client.ask(52, dict(asked(52, {}, key="rocketmq2").fields))
            assert orjson.loads(answer.fields["allAclFileVersion"])[str(file)]["counter"] == 1
            assert orjson.loads(answer.fields["version"])["counter"] == 1
            assert await ask(client, 51, {"accessKey": "newcomer"}, key="rocketmq2") == 0
            assert await ask(client, 51, {"accessKey": "newcomer"}, key="rocketmq2") == 210
            assert await ask(client, 50, {"accessKey": "x"}, key="rocketmq2") == 209
            assert await ask(client, 53, {"globalWhiteAddrs": "x"}, key="rocketmq2") == 211
            assert await ask(client, 53, {"globalWhiteAddrs": "10.0.0.{1,2},127.0.0.1"}, key="rocketmq2") == 0
            assert (await client.put("topicB", b"x")).code == 0
            assert "10.0.0.{1,2}" in file.read_text()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    denied = [getattr(one, "why", "") for one in caplog.records if one.getMessage() == "denied"]
    assert denied.count("No accessKey is configured") == 1
    began = time.perf_counter()
    guard, request = Guard(files(file), LOG), asked(310, send_fields("topicB"), bytes(1024))
    guard._files.load()
    for _ in range(1000):
        guard.check(ELSEWHERE, request)
    assert time.perf_counter() - began < 10  # 10 ms a message would be far too much


def test_a_daemon_with_a_broken_file_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts: 7\n")

    async def run() -> None:
        with pytest.raises(InvalidArgument, match="line 1"):
            async with daemon(tmp_path / "s", acl_enable=True, acl_file=str(file)):
                pass

    asyncio.run(run())
    assert RequestCode.UPDATE_AND_CREATE_ACL_CONFIG == 50
