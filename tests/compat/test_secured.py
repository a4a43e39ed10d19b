"""TLS and ACL with Apache's own clients: what is allowed goes through, all else is refused in Apache's words."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from engine.broker.acl.addresses import pack
from engine.broker.acl.files import AclFiles
from engine.broker.acl.guard import Denied, Guard
from engine.broker.requests.answers import Answer
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.wire.command import RemotingCommand
from engine.wire.signing import signature
from tests.compat import toolchain
from tests.compat.replicas import until
from tests.compat.served import CLIENT_S, Served, java_client, mqadmin, run_client, run_scenario, serve
from tests.engine.broker import certificates
from tests.engine.opening import assert_sound

pytestmark = pytest.mark.interop

MANY = 2000
ACL = """\
accounts:
  - accessKey: application
    secretKey: 12345678
    topicPerms:
      - Allowed=PUB|SUB
      - Readable=SUB
    groupPerms:
      - readers=SUB
  - accessKey: go-application
    secretKey: abcdefgh
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: PUB|SUB
  - accessKey: operator
    secretKey: 87654321
    admin: true
"""
SAYS = "org.apache.rocketmq.acl.common.AclException: "


@pytest.fixture(autouse=True, scope="module")
def _tools() -> None:
    try:
        toolchain.clients()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))


def test_tls_on_both_sides(tmp_path: Path) -> None:
    """Clients that show a certificate are served on all ports, others and plain text are not."""
    made = certificates.make(tmp_path / "certificates")
    conf = (
        f"tls.server.mode=enforcing\ntls.server.certPath={made.cert}\ntls.server.keyPath={made.key}\n"
        f"tls.server.need.client.auth=require\ntls.server.trustCertPath={made.authority}\n"
    )
    trusting = ("-Dtls.enable=true", "-Dtls.test.mode.enable=false", "-Dtls.client.authServer=true",
                f"-Dtls.client.trustCertPath={made.authority}")  # fmt: skip
    known = (*trusting, f"-Dtls.client.certPath={made.client_cert}", f"-Dtls.client.keyPath={made.client_key}")
    with serve(tmp_path / "store", conf) as served:
        found = run_scenario(served.names, "cluster", MANY, *known)
        assert (found["seen"], found["doubled"]) == (found["sent"], 0)
        assert "broker-a" in mqadmin(tmp_path, served.names, "clusterList", options=known)
        for options in ((), trusting):
            refused = mqadmin(tmp_path, served.names, "clusterList", options=options, answered=False)
            assert "broker-a" not in refused
    assert "refused" in (tmp_path / "store.log").read_text()
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "store"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("guarded")
    (root / "plain_acl.yml").write_text(ACL)
    with serve(root / "store", "brokerName=broker-a\n", "--acl", str(root / "plain_acl.yml")) as served:
        yield served
    assert_sound(StoreConfig(store_path_root_dir=root / "store"))


def operator(home: Path, served: Served, *words: str, key: str = "operator", secret: str = "87654321") -> str:
    """mqadmin with credentials."""
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "tools.yml").write_text(f'accessKey: {key}\nsecretKey: "{secret}"\n')
    return mqadmin(home, served.names, *words)


def test_clients_that_sign(guarded: Served, tmp_path: Path) -> None:
    for topic in ("Allowed", "Denied"):
        said = operator(tmp_path, guarded, "updateTopic", "-b", guarded.broker, "-t", topic, "-r", "4", "-w", "4")
        assert "create topic to" in said
    found = run_client(java_client("Secured", guarded.names, str(MANY), "application", "12345678"))
    assert found == {
        "seen": MANY,
        "doubled": 0,
        "again": MANY // 100 - 1,
        "denied": f"1 {SAYS}No default permission for topic:Denied",
        "deniedBatch": f"1 {SAYS}No default permission for topic:Denied",
        "wrongSecret": f"1 {SAYS}Check signature failed for accessKey=application",
        "nobody": f"1 {SAYS}No acl config for nobody",
        "unsigned": f"1 {SAYS}No accessKey is configured",
    }


def test_client_go_signs(guarded: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        program = toolchain.go_clients()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    monkeypatch.setenv("ACCESS_KEY", "go-application")
    monkeypatch.setenv("SECRET_KEY", "abcdefgh")
    found = run_client([str(program), guarded.names, str(MANY)])
    assert found == {"sent": found["sent"], "seen": found["sent"], "doubled": 0, "unwanted": 0}


def test_mqadmin_changes_the_acl(guarded: Served, tmp_path: Path) -> None:
    home, broker = tmp_path, guarded.broker
    file = guarded.root.parent / "plain_acl.yml"
    account = ("-b", broker, "-a", "newcomer", "-s", "12345678", "-i", "Made=PUB|SUB,Read=SUB", "-m", "true")
    denied = operator(home, guarded, "updateAclConfig", *account, key="application", secret="12345678")
    assert "Need admin permission" in denied
    assert "success" in operator(home, guarded, "updateAclConfig", *account)
    assert "newcomer" in file.read_text()
    made = ("updateTopic", "-b", broker, "-t", "Made", "-r", "1", "-w", "1")
    assert "create topic to" in operator(home, guarded, *made, key="newcomer", secret="12345678")
    versions = operator(home, guarded, "clusterAclConfigVersion", "-b", broker)
    assert str(file) in versions
    sent = operator(home, guarded, "sendMessage", "-t", "Made", "-p", "hello", "-k", "key-1", key="newcomer",
                    secret="12345678")  # fmt: skip
    assert "SEND_OK" in sent
    (unique,) = set(re.findall(r"\b[0-9A-F]{32,}\b", sent))
    for words in (("queryMsgByKey", "-t", "Made", "-k", "key-1"), ("queryMsgByUniqueKey", "-t", "Made", "-i", unique)):

        def found(words: tuple[str, ...] = words) -> bool:
            asked = operator(home, guarded, *words, key="newcomer", secret="12345678")
            assert "AclException" not in asked
            return unique in asked

        until(found, 120, "the index has it not")  # a moment after it is answered
    assert "success" in operator(home, guarded, "deleteAclConfig", "-b", broker, "-a", "newcomer")
    assert "No acl config for newcomer" in operator(home, guarded, *made, key="newcomer", secret="12345678")
    white = ("updateGlobalWhiteAddr", "-b", broker, "-g", "10.0.0.*,192.168.0.{1,2}")
    assert "success" in operator(home, guarded, *white)
    assert "192.168.0.{1,2}" in file.read_text()


ACCOUNTS = """\
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 172.16.3-5.*
  - 2::ac5:78:1-200:*
accounts:
  - accessKey: mixed-rights
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.{7,9}
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms: [topicA=DENY, topicB=PUB|SUB, topicC=SUB, topicD = PUB]
    groupPerms: [groupA=DENY, groupB=PUB|SUB, groupC=PUB]
  - accessKey: admin-of-all
    secretKey: 87654321
    whiteRemoteAddress: 192.168.2.1,::7
    admin: true
  - accessKey: admin-of-some
    secretKey: 87654321
    admin: true
    defaultTopicPerm: SUB|PUB
    topicPerms: [topicA=DENY]
  - accessKey: no-rights
    secretKey: 12345678
    whiteRemoteAddress: ""
"""
SECRETS = {"mixed-rights": "12345678", "admin-of-all": "87654321", "admin-of-some": "87654321", "no-rights": "12345678"}
TOPICS = ("topicA", "topicB", "topicC", "topicD", "other", "%RETRY%groupA", "%RETRY%groupB", "RMQ_SYS_TRACE_TOPIC")
GROUPS = ("groupA", "groupB", "groupC", "other")
ADDRESSES = (
    "10.10.103.200", "10.10.10.1", "172.16.4.4", "172.16.6.4", "192.168.1.7", "192.168.1.8", "192.168.2.1",
    "0:0:0:0:0:0:0:7", "2:0:0:0:ac5:78:100:1", "2:0:0:0:ac5:78:201:1",
)  # fmt: skip
STRICTER = {320, 361, 50, 51, 53}
"""Codes of which Apache asks too little (engine/broker/acl/__init__.py)."""


def requests() -> Iterator[dict[str, Any]]:
    """Requests in every combination of account, code, topic and group; then some for addresses and signatures."""
    for key, topic, group in product(SECRETS, TOPICS, GROUPS):
        named = {"topic": topic, "consumerGroup": group}
        subscription = {"topic": topic, "subString": "*"}
        heartbeat = {"clientID": "c", "consumerDataSet": [{"groupName": group, "subscriptionDataSet": [subscription]}]}
        for code, ext, body in (
            (10, {"topic": topic, "producerGroup": group}, "body"),
            (310, {"b": topic, "a": group}, "body"),
            (320, {"b": topic, "a": group}, "body"),
            (36, {"group": group, "offset": "1"}, ""),
            (11, named, ""),
            (361, named, ""),
            (12, {"topic": topic, "key": "k"}, ""),
            (34, {}, json.dumps(heartbeat)),
            (35, {"clientID": "c", "consumerGroup": group}, ""),
            (38, {"consumerGroup": group}, ""),
            (15, {**named, "queueId": "0", "commitOffset": "1"}, ""),
            (14, {**named, "queueId": "0"}, ""),
        ):
            yield request(key, code, ext, body)
    for key, secret in SECRETS.items():
        for code in (17, 25, 26, 28, 37, 50, 51, 52, 53, 200, 207, 215, 9999):
            yield request(key, code, {"topic": "topicB", "accessKey": "x"}, "")
        for address in ADDRESSES:
            yield request(key, 310, {"b": "topicA"}, "body", address)
            yield {**request(key, 310, {"b": "topicB"}, "body", address), "body": "another"}
            yield {**request(key, 310, {"b": "topicB"}, "body", address), "ext": None}
            yield {**request(key, 310, {"b": "topicB"}, "body", address), "ext": {"AccessKey": key}}
            yield request("nobody-at-all", 310, {"b": "topicB"}, "body", address)
        yield request(key, 310, {"b": "topicB", "z": "\u00e4\u4e2d", "A": "1", "aa": "2"}, "b\u00f6dy")
        yield request(key, 34, {}, "no heartbeat")
        query = {"topic": "topicB", "_UNIQUE_KEY_QUERY": "true", "AccessKey": key}
        for flag in (False, True):
            signed = signature(query, b"", secret.encode(), query_flag=flag)
            yield {"address": "10.0.0.1", "code": 12, "ext": {**query, "Signature": signed}, "body": "", "ours": flag}


def request(key: str, code: int, ext: dict[str, str], body: str, address: str = "10.0.0.1") -> dict[str, Any]:
    """One that is signed."""
    fields = {**ext, "AccessKey": key}
    signed = signature(fields, body.encode(), SECRETS.get(key, "").encode())
    return {"address": address, "code": code, "ext": {**fields, "Signature": signed}, "body": body}


def is_retry(one: dict[str, Any]) -> bool:
    """Whether it is a send to a retry topic: we ask for a right on that topic's group, Apache on another field's."""
    ext = one["ext"] or {}
    return one["code"] in (10, 310) and ext.get("b", ext.get("topic", "")).startswith("%RETRY%")


def stricter(one: dict[str, Any]) -> bool:
    """Whether we check what Apache forgets."""
    return one["code"] in STRICTER or is_retry(one)


def judged(guard: Guard, one: dict[str, Any]) -> str | None:
    """Why a request is denied; None: it is not."""
    try:
        guard.check(pack(one["address"]), RemotingCommand(one["code"], ext=one["ext"], body=one["body"].encode()))
    except (Denied, Answer) as why:
        return str(why)
    return None


def same_words(one: dict[str, Any], ours: str | None, theirs: str | None) -> bool:
    """Of several rights that are missing Apache names the first of a hash table; a parser's words are its own."""
    missing = all(said is not None and said.startswith("No default permission for ") for said in (ours, theirs))
    return ours == theirs or missing or one["body"] == "no heartbeat"


def test_verdicts_are_apaches(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    cases = list(requests())
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    done = subprocess.run(
        java_client("AclVerdicts", str(tmp_path / "cases.json"), options=(f"-Drocketmq.home.dir={tmp_path}",)),
        capture_output=True, text=True, timeout=CLIENT_S, check=True, env={**os.environ, "ROCKETMQ_HOME": ""},
    )  # fmt: skip
    theirs = json.loads([line for line in done.stdout.splitlines() if line.startswith(("[", "{"))][-1])
    assert len(theirs) == len(cases) > 1500
    files = AclFiles(Disk(), str(file), str(tmp_path / "conf" / "acl"), lambda: 1, logging.getLogger("test"))
    files.load()
    guard = Guard(files, logging.getLogger("test"), strict=False)
    strict = Guard(files, logging.getLogger("test"))
    denied, closed, opened, retried, wrong = 0, 0, 0, 0, []
    for one, verdict in zip(cases, theirs, strict=True):
        ours = judged(guard, one)
        assert ours is None or judged(strict, one) is not None, "aclStrict allows what is refused without it"
        denied += ours is not None
        if ours != verdict and ours is not None and verdict is None and stricter(one):
            closed += 1
        elif ours is None and verdict is not None and is_retry(one) and verdict.startswith("No default permission"):
            retried += 1  # to the retries of one's own group, whatever group the other field names
        elif one.get("ours") and verdict == f"Check signature failed for accessKey={one['ext']['AccessKey']}":
            opened += ours is None
        elif (ours is None) != (verdict is None) or not same_words(one, ours, verdict):
            wrong.append((one, ours, verdict))
    assert wrong == []
    assert 100 < denied < len(cases) - 100
    assert closed > 10
    assert opened == 3  # all that may read at all
    assert retried > 0
