"""What a broker makes of each line of its file. tests/compat/test_conf.py has Apache itself confirm it, 500 times."""

from __future__ import annotations

import pytest

from engine.broker_conf.all_keys import all_keys
from engine.broker_conf.delete_when import read_delete_when
from engine.broker_conf.in_force import SERVER, STORE
from engine.broker_conf.properties import Line, read_properties
from engine.broker_conf.release_keys import newer_brokers
from engine.broker_conf.report import Judgement, LineVerdict, Report, read_conf
from engine.broker_conf.start_rules import AT_LEAST, unreadable_server
from engine.broker_conf.values import ValueKind, read_value, shown
from engine.errors import InvalidArgument
from tests.support.fixtures import FIXTURES

IN_FORCE, MISREAD, IGNORED, NEWER, UNKNOWN = Judgement
NO_LOG = "names no directory: the broker starts with an empty log, deletes all consume queues and refuses every put"
SEEDS = FIXTURES / "conf" / "commented.properties"
"""The broker.conf of a guide that many have copied: comments behind values, keys of older releases."""


def read(text: str) -> Report:
    return read_conf(text.encode())


def only(text: str) -> LineVerdict:
    (verdict,) = read(text).verdicts
    return verdict


def test_a_file_with_comments_behind_its_values() -> None:
    report = read_conf(SEEDS.read_bytes())
    judged = {v.key: v.judgement for v in report.verdicts}
    assert {k for k, j in judged.items() if j is MISREAD} == {
        "listenPort",
        "brokerId",
        "deleteWhen",
        "fileReservedTime",
    }
    assert {k for k, j in judged.items() if j is IGNORED} == {
        *("storePathConsumeQueue", "storePathIndex", "storeCheckpoint", "abortFile")
    }
    assert [d.keys for d in report.dangers] == [("deleteWhen",)]
    assert "nothing is ever deleted" in report.dangers[0].what
    assert report.starts
    assert report.settings[STORE, "fileReservedTime"] == 72


@pytest.mark.parametrize(
    ("text", "judgement", "in_force", "why"),
    [
        ("fileReservedTime=48", IN_FORCE, 48, ""),
        ("fileReservedTime=48 ", MISREAD, 72, "the blanks at its end are part of the value"),
        ("fileReservedTime=48 # h", MISREAD, 72, "a comment after a value is part of the value"),
        ("fileReservedTime=2147483648", MISREAD, 72, "not a 32-bit integer"),
        ("fileReservedTime=1_000", MISREAD, 72, "not a 32-bit integer"),
        ("osPageCacheBusyTimeOutMills=2147483648", IN_FORCE, 2147483648, ""),
        ("diskMaxUsedSpaceRatio=99", MISREAD, 95, "99 is invalid"),
        ("mappedFileSizeConsumeQueue=20001", MISREAD, 20020, "20001 is invalid"),
        ("brokerRole=SLAVE # b", MISREAD, "ASYNC_MASTER", "not one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("flushDiskType=sync_flush", MISREAD, "ASYNC_FLUSH", "not one of"),
        ("enableLmq=TRUE", IN_FORCE, True, ""),
        ("enableLmq=yes", MISREAD, False, "neither true nor false"),
        ("brokerName=a#b", IN_FORCE, "a#b", ""),
        ("brokerName=a ", MISREAD, "a ", "the blanks at its end"),
        ("brokerName=\u8def", MISREAD, "\u00e8\u00b7\u00af", "read as ISO-8859-1, not as UTF-8"),
        ("brokerName=\\u8def", IN_FORCE, "\u8def", ""),
        ("brokerId=5", IGNORED, 0, "the broker sets it to 0 at its start"),
        ("registerNameServerPeriod=5", IGNORED, 10_000, "limits it to 10000 to 60000: 10000"),
        ("deleteWhen=4\u70b9", MISREAD, "4\u00e7\u0082\u00b9", "read as ISO-8859-1, not as UTF-8"),
        ("haListenPort=7", IGNORED, 10912, "listenPort + 1, 10912"),
        ("mapedFileSizeCommitLog=1", IGNORED, None, "mappedFileSizeCommitLog is read"),
        ("isEnableBatchPush=true", IGNORED, None, "read as enableBatchPush"),
        ("tls.server.mode=enforcing", IGNORED, None, "-Dtls.server.mode="),
        ("aclStrict=false", IGNORED, None, "a setting of rstore serve"),
        ("maxGroupsPerClient=9", IGNORED, None, "a setting of rstore serve"),
        ("adminAllow=10.0.0.7", IGNORED, None, "a setting of rstore serve"),
        ("timerWheelEnable=true", NEWER, None, "read by RocketMQ 5, not by a 4.9.8 broker"),
        ("rmqAddressServerDomain=here", IN_FORCE, "here", ""),
        ("filereservedtime=1", UNKNOWN, None, "did you mean fileReservedTime?"),
        ("brokerNam=1", UNKNOWN, None, "did you mean brokerName?"),
        ("xyz=1", UNKNOWN, None, ""),
    ],
)
def test_a_verdict_for_each_line(text: str, judgement: Judgement, in_force: object, why: str) -> None:
    verdict = only(text)
    assert (verdict.judgement, verdict.in_force) == (judgement, in_force)
    assert why in verdict.why
    assert bool(verdict.why) == bool(why)
    assert verdict.to_json()["verdict"] == judgement.value


def test_a_file_of_rocketmq_5_under_a_controller_is_as_it_should_be() -> None:
    """Its samples have brokerId=-1 for a slave, which its controller changes; a 4.9.8 broker does not start so."""
    written = b"brokerRole=SLAVE\nbrokerId=-1\ncontrollerAddr=127.0.0.1:9878\nallAckInSyncStateSet=true\n"
    assert read_conf(written).stops
    report = read_conf(written + b"enableControllerMode=true\n")
    assert report.starts
    assert {verdict.judgement for verdict in report.verdicts} == {IN_FORCE, NEWER}


@pytest.mark.parametrize(
    ("key", "brokers"),
    [
        ("enabledAppendPropCRC", "RocketMQ 5"),
        ("recallMessageEnable", "RocketMQ 5.3.3 and later"),
        ("enableTransparentRetry", "RocketMQ 5 up to 5.3.1"),
        ("tieredStorageLevel", "RocketMQ 5 with tiered storage"),
        ("brokerName", None),
        ("brokerConfigPath", None),
        ("xyz", None),
    ],
)
def test_which_brokers_read_a_key_that_4_9_8_does_not_know(key: str, brokers: str | None) -> None:
    assert newer_brokers(key) == brokers


@pytest.mark.parametrize("path", ["store", "/data/\u8def"])
def test_the_logs_directory_below_the_stores_is_no_danger_of_its_own(path: str) -> None:
    assert [danger.keys for danger in read(f"storePathRootDir={path}").dangers] == [("storePathRootDir",)]


def test_a_transient_pool_that_is_not_used_was_read_all_the_same() -> None:
    _, verdict = read("flushDiskType=SYNC_FLUSH\ntransientStorePoolEnable=TRUE").verdicts
    assert (verdict.judgement, verdict.in_force) == (MISREAD, False)
    assert verdict.why == "true has no effect with SYNC_FLUSH or on a SLAVE"


def test_of_two_lines_with_a_key_the_last_counts() -> None:
    first, second = read("fileReservedTime=1\n# between\nfileReservedTime=2\n").verdicts
    assert (first.judgement, first.why) == (IGNORED, "line 3 sets the key again and is in force")
    assert (second.judgement, second.in_force, second.line) == (IN_FORCE, 2, 3)


@pytest.mark.parametrize(
    ("text", "keys", "what"),
    [
        ("brokerRole=SLAVE", ("brokerRole", "brokerId"), "a SLAVE with brokerId 0"),
        ("brokerRole=SLAVE\nbrokerId=1 # b", ("brokerRole", "brokerId"), "a SLAVE with brokerId 0"),
        ("namesrvAddr=127.0.0.1:9876 # here", ("namesrvAddr",), "is not a host:port"),
        ("listenPort=70000", ("listenPort",), "listenPort = 70000"),
        (
            "enableDLegerCommitLog=true",
            ("enableDLegerCommitLog", "dLegerGroup", "dLegerPeers", "dLegerSelfId"),
            "without",
        ),
        ("messageDelayLevel=1s,5s", ("messageDelayLevel",), "'1s,5s' is not a list of times"),
        ("sendMessageThreadPoolNums=0", ("sendMessageThreadPoolNums",), "a thread pool must not be empty"),
        ("a=\\u12", (), "no broker starts"),
        ("storePathRootDir=/a\\u0000b", ("storePathRootDir",), "contains a NUL character"),
    ],
)
def test_what_a_broker_does_not_start_with(text: str, keys: tuple[str, ...], what: str) -> None:
    report = read(text)
    assert not report.starts
    assert report.dangers[0].keys == keys
    assert what in report.dangers[0].what


@pytest.mark.parametrize(
    ("text", "keys", "what"),
    [
        ("deleteWhen=04; 16", ("deleteWhen",), "outside of 04 o'clock fails: then nothing is deleted"),
        ("deleteWhen=24", ("deleteWhen",), "contains no hour of the day"),
        ("fileReservedTime=0", ("fileReservedTime",), "deletes every segment but the last"),
        ("namesrvAddr=a:1; b:2", ("namesrvAddr",), "never registers there"),
        ("storePathRootDir=/data/\u8def", ("storePathRootDir",), "makes its files elsewhere"),
        ("diskMaxUsedSpaceRatio=90", ("diskMaxUsedSpaceRatio",), "segments of any age"),
        ("brokerRole=SLAVE ", ("brokerRole",), "two masters have the same name"),
        ("flushDiskType=SYNC_FLUSH ", ("flushDiskType",), "before they are on disk"),
        ("transientStorePoolEnable=true\nflushDiskType=SYNC_FLUSH", ("transientStorePoolEnable",), "has no effect"),
        ("checkCRCOnRecover=false", ("checkCRCOnRecover",), "damaged bodies"),
        ("brokerIP1=10.0.0.1 ", ("brokerIP1",), "no client can connect"),
        ("aclEnable=true # on", ("aclEnable",), "every client may do everything"),
        (
            "readOnlyCommitLogStorePaths=/b\nstorePathCommitLog=/a",
            ("readOnlyCommitLogStorePaths",),
            "does not load those segments",
        ),
        ("storePathRootDir=/data/store ", ("storePathRootDir",), "another, empty store"),
        *(
            (
                f"storePathRootDir={path}",
                ("storePathRootDir",),
                "does not begin with /: the broker makes its files below",
            )
            for path in ("store", "$HOME/store", "${user.home}/store", "~/store", '"/data/store"', "'/data/store'")
        ),
        ("storePathRootDir=/a\nstorePathCommitLog=log", ("storePathCommitLog",), "'log' does not begin with /"),
        ("storePathCommitLog=/a,b", ("storePathCommitLog",), "'b' does not begin with /"),
        (
            "storePathCommitLog=/a,/b\nreadOnlyCommitLogStorePaths=old",
            ("readOnlyCommitLogStorePaths",),
            "'old' does not begin with /",
        ),
        ("storePathCommitLog=/a, /b", ("storePathCommitLog",), "' /b' is not the directory '/b'"),
        *((f"storePathCommitLog={text}", ("storePathCommitLog",), NO_LOG) for text in (",", ",,", ", ", "\\u0009,")),
        (
            "storePathCommitLog=/a\\u0000b",
            ("storePathCommitLog",),
            "contains a NUL character: the broker starts with an",
        ),
        ("storePathCommitLog=,/a", ("storePathCommitLog",), "makes some of its segments in /"),
        ("storePathCommitLog=/a,,/b", ("storePathCommitLog",), "makes some of its segments in /"),
        ("storePathCommitLog=/a # the log", ("storePathCommitLog",), "deletes all consume queues"),
        ("storePathCommitLog=/a,/b # two", ("storePathCommitLog",), "'/b # two' is not the directory '/b'"),
        (
            "storePathCommitLog=/a,\nreadOnlyCommitLogStorePaths=/a",
            ("readOnlyCommitLogStorePaths", "storePathCommitLog"),
            "the broker can make no segment",
        ),
        (
            "storePathCommitLog=/a,\nreadOnlyCommitLogStorePaths=/b # old",
            ("readOnlyCommitLogStorePaths",),
            "does not load the segments there",
        ),
        ("mappedFileSizeCommitLog=1048576 # 1M", ("mappedFileSizeCommitLog",), "can't load files of another size"),
        ("mappedFileSizeCommitLog=1048576", ("maxMessageSize",), "must fit into a segment"),
        ("mappedFileSizeCommitLog=-1", ("mappedFileSizeCommitLog",), "can't load files of that size"),
        ("messageDelayLevel=\\u0020", ("messageDelayLevel",), "names no level"),
        ("flushIntervalCommitLog=-1", ("flushIntervalCommitLog",), "flushes the log only when it stops"),
        ("listenPort=2", ("listenPort",), "VIP"),
        ("brokerIP1=", ("brokerIP1",), "no client can connect"),
        ("brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=a:1 # m", ("haMasterAddress",), "never gets a message"),
        ("brokerPermission=4", ("brokerPermission",), "sends are refused"),
    ],
)
def test_what_is_dangerous(text: str, keys: tuple[str, ...], what: str) -> None:
    report = read(text)
    assert report.starts
    found = [danger for danger in report.dangers if danger.keys[: len(keys)] == keys]
    assert len(found) == 1, report.dangers
    assert what in found[0].what
    assert found[0].hint


def test_each_danger_says_what_to_set() -> None:
    """A hint that is the same for two keys is printed once: below the second, nothing said what to do."""
    report = read("serverSelectorThreads=-1\nflushIntervalCommitLog=-1\nmaxMessageSize=0\nsendMessageThreadPoolNums=0")
    assert len(report.dangers) == 4
    for danger in report.dangers:
        assert danger.hint.startswith(f"set {danger.keys[0]} to at least")


def test_nothing_is_dangerous_in_the_defaults() -> None:
    report = read("")
    assert (report.verdicts, report.dangers) == ((), ())
    assert report.settings[SERVER, "listenPort"] == 10911


def test_lines_and_where_they_begin() -> None:
    data = b"# one\r\n\r\n  a = 1\\\r\n   2\r\nb:3\rc\n\\\n# no key\n\xe4=\\u00e4"
    assert read_properties(data).lines == (
        Line(3, "a", "12"),
        Line(5, "b", "3"),
        Line(6, "c", ""),
        Line(9, "\u00e4", "\u00e4"),
    )
    assert read_properties(b"a=1\n \\").values == {"a": "1"}
    assert read_properties(b"a\\\n \\").values == {"a": ""}
    assert read_properties(rb"a=\ud83d\ude00x\ud83d7\ude00").values == {"a": "\U0001f600x?7?"}, "as Java writes it"
    with pytest.raises(InvalidArgument, match="line 2"):
        read_properties(b"a=1\nb=\\uzzzz\n")


def test_the_tables_have_no_key_twice_in_a_class() -> None:
    every = [(key.owner, key.name) for keys in all_keys().values() for key in keys]
    assert len(every) == len(set(every)) == 187
    assert all(key.meaning for keys in all_keys().values() for key in keys)


@pytest.mark.parametrize(
    "text", ["", "+", "-", " 1", "1 ", "1_0", "0x1", "1.0", "\U0001d7d8", "2147483648", "9" * 5000]
)
def test_what_java_takes_for_no_int(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_value(ValueKind.INT, text)


@pytest.mark.parametrize(
    ("text", "value"), [("+7", 7), ("-0", 0), ("0" * 5000 + "7", 7), ("\u0665\uff11", 51), ("-2147483648", -(1 << 31))]
)
def test_what_java_takes_for_an_int(text: str, value: int) -> None:
    assert read_value(ValueKind.INT, text) == value


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a:1;b:2;", None),
        ("a:1;;b:2", ""),
        ("", ""),
        (";", None),
        ("a", "a"),
        ("a:x", "a:x"),
        ("[::1]:1", None),
        (":1", None),
    ],
)
def test_name_servers(text: str, wrong: str | None) -> None:
    assert unreadable_server(text) == wrong


def test_delete_when_is_told_in_one_sentence() -> None:
    assert read_delete_when("04").problem("04") is None
    said = read_delete_when("04;x;5").problem("04;x;5")
    assert said == (
        "deleteWhen = '04;x;5': 'x' is not a number, so every round of retention outside of 04 o'clock fails: then "
        "nothing is deleted, however full the disk is"
    )


def test_long_and_foreign_text_is_shown_in_part() -> None:
    assert shown("short") == "'short'"
    assert all(len(shown(text)) <= 32 for text in ("x" * 99, "\u8def" * 99, "\U0001f600" * 9))


def test_what_the_file_says_is_shown_as_it_says_it() -> None:
    """Java reads ISO-8859-1; a file in UTF-8 is shown in UTF-8, and what a broker makes of it is said."""
    verdict = only("brokerName=\u8def\u5f84 # \u8def")
    assert verdict.text.endswith("in force: '\u8def\u5f84 # \u8def', read as ISO-8859-1 (a character a byte)")
    assert verdict.to_json()["written"] == "\u8def\u5f84 # \u8def"
    assert verdict.to_json()["inForce"] == verdict.in_force == verdict.written != "\u8def\u5f84 # \u8def"
    (danger,) = read("messageDelayLevel=1s # \u79d2").dangers
    assert danger.what == "messageDelayLevel = '1s # \u79d2' is not a list of times"
    assert only("\u8def=1").name == "\u8def"
    (german,) = read_conf("brokerName=\u00fc ".encode("iso-8859-1")).verdicts
    assert german.text.endswith("in force: '\u00fc '")


def test_a_byte_order_mark_is_named() -> None:
    verdict = only("\ufeffbrokerName=a")
    assert (verdict.judgement, verdict.name) == (UNKNOWN, "\ufeffbrokerName")
    assert "byte order mark (BOM)" in verdict.why
    assert verdict.why.endswith("did you mean brokerName?")


def test_the_start_computes_the_bits_of_a_filter() -> None:
    verdict = only("bitMapLengthConsumeQueueExt=64")
    assert (verdict.judgement, verdict.in_force) == (IGNORED, 112)
    assert only("bitMapLengthConsumeQueueExt=112").judgement is IN_FORCE


def test_each_lowest_number_is_one_of_a_key() -> None:
    known = {(key.owner, key.name) for keys in all_keys().values() for key in keys}
    assert AT_LEAST.keys() <= known


@pytest.mark.parametrize(
    "text",
    [
        *("aclEnable=false # off", "flushDiskType=ASYNC_FLUSH\\t", "brokerRole=ASYNC_MASTER # the first"),
        *(
            "storePathCommitLog=/a,/b ",
            "storePathCommitLog=/a, ",
            "storePathCommitLog=/a,,",
        ),  # a broker trims the whole
        *(
            "storePathCommitLog=/a,\nreadOnlyCommitLogStorePaths=/b\\t",
            "storePathCommitLog=/a,\nreadOnlyCommitLogStorePaths=",
        ),
        *("mappedFileSizeCommitLog=1073741824 # 1G", "deleteWhen=04;", "messageDelayLevel=1s 5s\\u0020"),
    ],
)
def test_a_misread_value_whose_default_was_meant_is_no_danger(text: str) -> None:
    assert read(text).dangers == ()


ACL_ON, TLS_ON = "aclEnable=true\n", "tls.server.mode=enforcing\n"


@pytest.mark.parametrize(
    ("text", "keys", "what"),
    [
        (ACL_ON, ("aclEnable",), "connects to port 10912 of Apache's broker gets the log"),
        (ACL_ON + "listenPort=20001\nbrokerRole=SYNC_MASTER", ("aclEnable",), "connects to port 20002 of Apache's"),
        (ACL_ON + "haListen=0.0.0.0", ("haListen", "aclEnable"), "haListen = '0.0.0.0' without haAllow"),
        (TLS_ON + "haListen = ::", ("haListen", "tls.server.mode"), "haListen = '::' without haAllow"),
        (ACL_ON + "haListen=0.0.0.0\nhaAllow=", ("haListen", "aclEnable"), "whoever connects"),
        (TLS_ON + "haTls=true", ("haTls", "tls.server.mode"), "whoever connects by TLS"),
        (ACL_ON + "haTls=TRUE \nhaListen=10.0.0.7", ("haListen", "aclEnable"), "whoever connects by TLS"),
    ],
)
def test_a_replication_port_that_is_open_to_all(text: str, keys: tuple[str, ...], what: str) -> None:
    """Dangerous together with what lets not everybody in; what is so with each broker of Apache's is a note."""
    report = read(text)
    (danger,) = report.dangers
    assert (danger.keys, danger.note, report.starts) == (keys, keys == ("aclEnable",), True)
    assert what in danger.what
    assert "haAllow" in danger.hint


@pytest.mark.parametrize(
    "text",
    [
        *("", "brokerRole=SYNC_MASTER", "haListen=0.0.0.0", "haTls=true", "tls.server.mode=permissive", TLS_ON),
        *(ACL_ON + more for more in ("haAllow=10.0.0.7", "haAllow=registered\nhaListen=0.0.0.0", "haListen=::1")),
        *(
            ACL_ON + more
            for more in ("brokerRole=SLAVE\nbrokerId=1", "haTls=true\ntls.server.need.client.auth=require")
        ),
        TLS_ON + "haTls=true\nhaListen=127.0.0.1",
        ACL_ON + "haTls=true\ntls.config.file=/etc/rstore/tls.properties",
        ACL_ON + "enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers=n0-127.0.0.1:40911\ndLegerSelfId=n0",
    ],
)
def test_a_replication_port_of_which_nothing_is_to_be_told(text: str) -> None:
    """Without an ACL and enforced TLS everybody may read all the same; DLedger has no such port."""
    assert read(text).dangers == ()
