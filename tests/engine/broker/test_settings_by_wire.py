"""Settings over the wire: all keys of Apache's are told; what opens a door, names a path or a port is not changed."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path

import pytest

from engine.broker.ha.settings import KEYS as HA_KEYS
from engine.broker.settings.broker_settings import KEYS
from engine.broker.settings.protected import why_protected
from engine.broker_conf import in_force
from engine.broker_conf.all_keys import all_keys
from engine.broker_conf.network_keys import SERVER_KEYS
from engine.config import NOT_SETTINGS, StoreConfig, apache_key
from engine.wire.codes import RequestCode, ResponseCode
from tests.engine.broker.client import Client
from tests.engine.broker.test_daemon import served

C = RequestCode
OF_STORES = {apache_key(one.name) for one in dataclasses.fields(StoreConfig) if one.name not in NOT_SETTINGS}
KNOWN = {*all_keys(), *KEYS, *HA_KEYS, *OF_STORES}
PROTECTED = {
    "a path": {
        *("storePathRootDir", "storePathCommitLog", "storePathDLedgerCommitLog", "readOnlyCommitLogStorePaths"),
        *("rocketmqHome", "messageStorePlugIn", "rocketmq.acl.plain.file"),
    },
    "a port or an address": {
        *("listenPort", "haListenPort", "brokerIP1", "brokerIP2", "namesrvAddr", "haMasterAddress"),
        "fetchNamesrvAddrByAddressServer",
    },
    "what the broker is": {
        *("brokerRole", "brokerId", "brokerName", "brokerClusterName"),
        *("enableDLegerCommitLog", "dLegerGroup", "dLegerPeers", "dLegerSelfId", "preferredLeaderId"),
    },
    "who may get in": {
        *("aclEnable", "aclStrict", "adminAllow", "namesAllow", "configBlackList", "useTLS", "filterServerNums"),
        *(key for key in KEYS if key.startswith("tls.")),
    },
}
BEYOND = {"haAllow", "haTls", "haTlsMode", "haListen", "haListenAddress", "haBindAddress"}
"""Keys of replication that let somebody in: refused by their beginning or end, whoever adds them."""


async def told(client: Client, code: int = C.GET_BROKER_CONFIG) -> dict[str, str]:
    return dict(line.split("=", 1) for line in bytes((await client.ask(code)).body).decode().splitlines())


def test_which_keys_are_protected() -> None:
    """Every key that there is was looked at: those of the table are refused, and no other."""
    found: dict[str, set[str]] = {}
    for key in KNOWN - BEYOND:
        why = why_protected(key)
        if why is not None:
            found.setdefault(why, set()).add(key)
    assert found == PROTECTED
    assert all(why_protected(key) for key in BEYOND)
    assert all(why_protected(key) for key in ("storePathConsumeQueue", "someNewPath", "metricsPort", "otherAllow"))


def test_a_protected_key_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("# mine\nfileReservedTime=72\n")

    async def work(one: Client, two: Client, names: str) -> None:
        del two, names
        before = await told(one)
        for why, keys in PROTECTED.items():
            for key in sorted(keys):
                for value in ("/etc", "true", "7"):
                    body = f"fileReservedTime=48\n{key}={value}\n".encode()
                    refused = await one.ask(C.UPDATE_BROKER_CONFIG, None, body)
                    assert refused.code == ResponseCode.NO_PERMISSION, key
                    by_apache = key in ("rocketmqHome", "configBlackList")  # as Apache's broker refuses them, first
                    assert refused.remark == (
                        "Can not update config in black list."
                        if by_apache
                        else f"{key} is {why}: not changed over the wire; set it in broker.conf and restart"
                    )
        assert await told(one) == before
        assert (await one.ask(C.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=48\n")).code == 0

    served(tmp_path / "s", work, config_file=str(conf))
    assert conf.read_text() == "# mine\nfileReservedTime=48\n"


def test_all_keys_of_apaches_are_told_with_their_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its four objects; ours where we have the setting, the default or the file's where we have not."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)

    async def work(one: Client, two: Client, names: str) -> None:
        del two, names
        found = await told(one)
        defaults = in_force.started(in_force.of_file({}))
        shown = {
            ("isEnableBatchPush" if key == "enableBatchPush" else key): value for (_, key), value in defaults.items()
        }
        assert {key for key, value in shown.items() if value is not None} <= found.keys()
        assert len(found) > 170
        for key, value in {
            "serverWorkerThreads": "8", "clientWorkerThreads": "4", "maxHashSlotNum": "1000",
            "regionId": "DefaultRegion",
            "traceOn": "true", "brokerRole": "ASYNC_MASTER", "storePathRootDir": str(tmp_path / "s"),
            "mappedFileSizeCommitLog": str(4 << 20), "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1",
            "isEnableBatchPush": "false", "sendMessageThreadPoolNums": str(min(len(os.sched_getaffinity(0)), 4)),
            "aclStrict": "true", "adminAllow": "", "bitMapLengthConsumeQueueExt": "64",
        }.items():  # fmt: skip
            assert found[key] == value, key

    served(tmp_path / "s", work)


def test_a_key_that_only_apache_has_is_written_and_said_to_have_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=broker-a\n")

    async def work(one: Client, two: Client, names: str) -> None:
        del two, names
        body = b"sendMessageThreadPoolNums=16\nisEnableBatchPush=true\n"
        assert (await one.ask(C.UPDATE_BROKER_CONFIG, None, body)).code == 0
        found = await told(one)
        assert (found["sendMessageThreadPoolNums"], found["isEnableBatchPush"]) == ("16", "false")

    served(tmp_path / "s", work, config_file=str(conf))
    assert conf.read_text() == "brokerName=broker-a\nsendMessageThreadPoolNums=16\n"
    assert "sendMessageThreadPoolNums = 16 has no effect here" in caplog.text
    assert "isEnableBatchPush is not a setting of this broker" in caplog.text


# --- the name service -----------------------------------------------------------------------------------------------


def test_the_name_service_tells_all_its_keys_and_says_what_became_of_a_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(one: Client, two: Client, names: str) -> None:
        del one, two
        service = await Client.to(names)
        found = await told(service, C.GET_NAMESRV_CONFIG)
        of_names = {"rocketmqHome", "kvConfigPath", "configStorePath", "productEnvName", "clusterTest",
                    "orderMessageEnable", "configBlackList"}  # fmt: skip
        assert found.keys() == of_names | {key.name for key in SERVER_KEYS}
        assert found["kvConfigPath"] == str(tmp_path / "s" / "config" / "kvConfig.json")
        assert (found["orderMessageEnable"], found["serverChannelMaxIdleTimeSeconds"]) == ("false", "120")

        async def update(body: bytes) -> tuple[int, str | None]:
            answer = await service.ask(C.UPDATE_NAMESRV_CONFIG, None, body)
            return answer.code, answer.remark

        assert await update(b"orderMessageEnable=true\nproductEnvName=edge\nnonsense=1\n") == (0, None)
        found = await told(service, C.GET_NAMESRV_CONFIG)
        assert (found["orderMessageEnable"], found["productEnvName"], "nonsense" in found) == ("true", "edge", False)
        assert await update(b"orderMessageEnable=false\nserverWorkerThreads=many\n") == (
            ResponseCode.SYSTEM_ERROR,
            "serverWorkerThreads = 'many' is not a 32-bit integer",
        )
        black = (ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        assert await update(b"orderMessageEnable=false\nkvConfigPath=/etc\n") == black
        why = "listenPort is a port or an address: not changed over the wire; set it in broker.conf and restart"
        assert await update(b"orderMessageEnable=false\nlistenPort=1\n") == (ResponseCode.NO_PERMISSION, why)
        assert (await told(service, C.GET_NAMESRV_CONFIG))["orderMessageEnable"] == "true"

    with caplog.at_level(logging.INFO):
        served(tmp_path / "s", work)
    assert "orderMessageEnable = true is in force until the daemon stops" in caplog.text
    assert "productEnvName = edge has no effect here" in caplog.text
    assert "nonsense is not a setting of this name server" in caplog.text
