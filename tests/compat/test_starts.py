"""What we say that a broker does not start with: Apache's BrokerStartup itself tries each, all in one JVM.

And one setting that it starts with and must not.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from engine.broker_conf.in_force import STORE
from engine.broker_conf.report import read_conf
from engine.broker_conf.start_rules import AT_LEAST
from tests.compat import apache, real_broker, toolchain
from tests.compat.real_broker import LOGBACK, NO_TLS, OPENED, free_port
from tests.compat.replicas import consume, produce, until

pytestmark = pytest.mark.interop

DLEDGER = "enableDLegerCommitLog=true\ndLegerGroup=g\n"
REFUSED = {
    **{f"{key}, {owner}": f"{key}={least - 1}\n" for (owner, key), (least, _) in AT_LEAST.items()},
    "error rate": "maxErrorRateOfBloomFilter=100\n",
    "water marks": "writeBufferLowWaterMark=2\nwriteBufferHighWaterMark=1\n",
    "buffers": "transientStorePoolEnable=true\nmappedFileSizeCommitLog=-1\n",
    "no levels": "messageDelayLevel=\n",
    "levels with a comment": "messageDelayLevel=1s 5s # and so on\n",
    "levels with commas": "messageDelayLevel=1s,5s\n",
    "levels with two blanks": "messageDelayLevel=1s  5s\n",
    "levels of a slave": "messageDelayLevel=1S\nbrokerRole=SLAVE\nbrokerId=1\n",
    "name servers": "namesrvAddr=127.0.0.1:9876 # here\n",
    "no name server": "namesrvAddr=\n",
    "a slave without a number": "brokerRole=SLAVE\nbrokerId=1 # the second\n",
    "a slave with DLedger": f"{DLEDGER}dLegerPeers=n0-127.0.0.1:1\ndLegerSelfId=n0\nbrokerRole=SLAVE\n",
    "DLedger without peers": f"{DLEDGER}dLegerSelfId=n0\n",
    "DLedger without itself": f"{DLEDGER}dLegerPeers=n0-127.0.0.1:1\n",
    "DLedger of others": f"{DLEDGER}dLegerPeers=n0-127.0.0.1:1\ndLegerSelfId=n1\n",
    "DLedger without a number": f"{DLEDGER}dLegerPeers=a-127.0.0.1:1\ndLegerSelfId=a\n",
    "DLedger without an address": f"{DLEDGER}dLegerPeers=n0\ndLegerSelfId=n0\n",
    "a home with a comment": "rocketmqHome=/opt/rocketmq # here\n",
    "no home": "rocketmqHome=\n",
    "a plug-in with a comment": "messageStorePlugIn=a.B # on\n",
    "the port above the last": "listenPort=65535\n",
    "no port": "listenPort=0\n",
    "a root with a NUL": "storePathRootDir=a\\u0000b\n",
    "no escape": "brokerName=\\u12\n",
}
STARTED = {
    "the lowest": "".join(f"{key}={least}\n" for (_, key), (least, _) in AT_LEAST.items())
    + "messageDelayLevel=-5s +1s \\u0665s 9999999999999999d\\u0020\nserverCallbackExecutorThreads=-1\n"
    "writeBufferLowWaterMark=2\nserverSocketBacklog=-1\nnamesrvAddr=127.0.0.1:0\nmessageStorePlugIn=,\n"
    "bitMapLengthConsumeQueueExt=7\n",
    "what no store can have": "mappedFileSizeCommitLog=-1\nmappedFileSizeConsumeQueue=0\nmaxHashSlotNum=0\n"
    "maxIndexNum=-1\nmaxMessageSize=-1\nmessageDelayLevel=\\u0020\nflushIntervalCommitLog=-1\nregionId=\u8def # x\n",
    "a slave": "brokerRole=SLAVE\nbrokerId=1\nflushDelayOffsetInterval=0\nhaMasterAddress=127.0.0.1:1 # here\n",
    "DLedger": DLEDGER.replace("=g", "=") + "dLegerPeers=n0-127.0.0.1:{dledger}\ndLegerSelfId=n0\n"
    "flushDelayOffsetInterval=0\n",
}


def ran(home: Path, files: dict[str, str]) -> dict[str, apache.Line]:
    """By name, what became of a start with each file, none with another's ports and store."""
    try:
        class_path = toolchain.apache_broker().class_path
        harness = toolchain.harness().split(os.pathsep)[0]
    except apache.Missing as missing:
        pytest.skip(str(missing))
    (home / "conf").mkdir()
    (home / "conf" / "logback_broker.xml").write_text(LOGBACK.format(file=home / "broker.log", level="OFF"))
    (home / "files").mkdir()
    names = {f"{number:03}": name for number, name in enumerate(files)}
    port = free_port(6 * len(files))
    for number, name in names.items():
        port += 6
        text = f"listenPort={port}\nstorePathRootDir={home / number}\nbrokerIP1=127.0.0.1\nbrokerIP2=127.0.0.1\n"
        text += files[name].format(dledger=port + 2)
        (home / "files" / number).write_text(text, encoding="utf-8")
    options = ["-Xmx1g", "-XX:TieredStopAtLevel=1", "-Djava.security.manager=allow", NO_TLS, *OPENED]
    words = [str(toolchain.java()), *options, f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", "-cp"]
    words += [f"{harness}{os.pathsep}{class_path}", "io.rstore.compat.Starts", str(home / "files")]
    environment = {key: value for key, value in os.environ.items() if key not in ("ROCKETMQ_HOME", "NAMESRV_ADDR")}
    found = subprocess.run(words, capture_output=True, timeout=300, check=False, env=environment, cwd=home)
    if b"UnsupportedOperationException" in found.stdout:
        pytest.skip("this Java has no SecurityManager any more: one JVM can't try several starts")
    assert found.returncode == apache.Exit.OPENED, found.stderr.decode() + found.stdout.decode()[-2000:]
    return {names[line["file"]]: line for line in apache.parse(found.stdout)}


def test_what_a_broker_does_not_start_with(tmp_path: Path) -> None:
    tried = ran(tmp_path, REFUSED | STARTED)
    assert tried.keys() == REFUSED.keys() | STARTED.keys()
    for name, line in tried.items():
        report = read_conf((tmp_path / "files" / line["file"]).read_bytes())
        assert line["ended"], name
        assert "already in use" not in line["said"], name
        assert (report.starts, line["started"]) == ((name in STARTED),) * 2, (name, line["said"])
        assert not line["started"] or report.settings[STORE, "bitMapLengthConsumeQueueExt"] == line["bits"], name


def test_a_log_path_of_separators_alone_costs_the_queues(tmp_path: Path) -> None:
    """It starts, as STARTED says of the others; what comes of it is why doctor warns."""
    root, conf = tmp_path / "store", "storePathCommitLog=,\n"
    try:
        with real_broker.serve(root) as broker:
            assert produce(broker.broker, "T", 4).codes == {0}
            until(lambda: len(consume(broker.broker, "T")) == 4, 30, "not dispatched")
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    assert any((root / "consumequeue").glob("*/*/*"))
    with real_broker.serve(root, real_broker.SETTINGS + conf) as broker:
        assert produce(broker.broker, "T", 4).bodies == set()
    assert not any((root / "consumequeue").glob("*/*/*"))
    (danger,) = read_conf(conf.encode()).dangers
    assert "deletes all consume queues and refuses every put" in danger.what
