"""Checkpoint, delay levels, fastjson, hosts, names, system flags."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import FormatError, InvalidArgument
from engine.format import checkpoint, delay, fastjson, hosts, names, sysflag
from engine.format.checkpoint import Checkpoint
from engine.format.delay import DelayLevels
from engine.format.hosts import Host
from tests.support import strategies


class TestCheckpoint:
    def test_literal_bytes(self) -> None:
        raw = bytes.fromhex("0000018bcfe568000000018bcfe5680a0000000000000005")
        found = Checkpoint(0x18BCFE56800, 0x18BCFE5680A, 5)
        assert checkpoint.decode(raw + bytes(4072)) == found
        assert found.encode() == raw

    @given(st.builds(Checkpoint, strategies.longs, strategies.longs, strategies.longs))
    def test_both_ways(self, found: Checkpoint) -> None:
        assert checkpoint.decode(found.encode()) == found

    @pytest.mark.parametrize("length", [0, 23])
    def test_too_few_bytes(self, length: int) -> None:
        with pytest.raises(FormatError):
            checkpoint.decode(bytes(length))

    def test_minimum(self) -> None:
        assert Checkpoint(10_000, 9_000, 50).min_timestamp == 6_000
        assert Checkpoint(9_000, 10_000, 50).min_timestamp == 6_000
        assert Checkpoint(9_000, 10_000, 50).min_timestamp_index == 50
        assert Checkpoint(9_000, 10_000, 7_000).min_timestamp_index == 6_000
        assert Checkpoint(2_000, 10_000).min_timestamp == 0
        assert Checkpoint().min_timestamp == 0


class TestDelayLevels:
    def test_apaches_default(self) -> None:
        levels = DelayLevels.parse()
        assert levels.max_level == 18
        assert levels.millis[:5] == (1_000, 5_000, 10_000, 30_000, 60_000)
        assert levels.millis[-1] == 7_200_000
        assert levels.clamp(20) == 18
        assert levels.clamp(3) == 3
        assert levels.deliver_timestamp(3, 100) == 10_100
        assert levels.deliver_timestamp(99, 100) == 7_200_100
        assert delay.queue_of_level(18) == 17

    def test_days(self) -> None:
        assert DelayLevels.parse("2d").millis == (172_800_000,)

    @pytest.mark.parametrize("text", ["", "1", "s", "1x", "1s  5s", "1s,5s", "é"])
    def test_no_list_of_times(self, text: str) -> None:
        with pytest.raises(InvalidArgument, match="messageDelayLevel"):
            DelayLevels.parse(text)


class TestFastjson:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('{"offsetTable":{"t@g":{0:22,1:26}}}', {"offsetTable": {"t@g": {"0": 22, "1": 26}}}),
            ('{"offsetTable":{1:5,2:0}}', {"offsetTable": {"1": 5, "2": 0}}),
            ("{ -1 : 2 ,\n 3 :\t4}", {"-1": 2, "3": 4}),
            ('{"a":"{1:2,3:4}"}', {"a": "{1:2,3:4}"}),
            ('{"a\\"{1:":"\\\\",2:3}', {'a"{1:': "\\", "2": 3}),
            ('{"{1:":[1,2,{3:4}]}', {"{1:": [1, 2, {"3": 4}]}),
            ('{"1":2}', {"1": 2}),
            ("[]", []),
        ],
    )
    def test_what_fastjson_writes(self, text: str, value: object) -> None:
        assert fastjson.loads(text) == value

    @pytest.mark.parametrize(
        "text", ["", "{", '{"a":', "{1:}", '{"a', '"\\', '"\\"', "\x00", "[" * 100_000, "9" * 10_000]
    )
    def test_what_is_no_json(self, text: str) -> None:
        with pytest.raises(FormatError, match="JSON"):
            fastjson.loads(text)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
        )
    )
    def test_plain_json_is_json(self, value: object) -> None:
        assert fastjson.loads(json.dumps(value)) == value
        assert fastjson.loads(json.dumps(value, ensure_ascii=False)) == value

    @given(st.dictionaries(st.integers(), st.integers() | st.text()))
    def test_bare_keys(self, value: dict[int, object]) -> None:
        text = "{" + ",".join(f"{key}:{json.dumps(item)}" for key, item in value.items()) + "}"
        assert fastjson.loads(text) == {str(key): item for key, item in value.items()}

    def test_a_string_without_end_takes_no_time(self) -> None:
        start = time.process_time()
        with pytest.raises(FormatError):
            fastjson.loads('"' + '\\"' * 100_000)
        assert time.process_time() - start < 5


class TestHosts:
    @given(strategies.hosts, st.binary(max_size=3))
    def test_both_ways(self, host: Host, before: bytes) -> None:
        assert hosts.decode(before + host.encode(), len(before), host.is_v6) == host
        assert len(host.encode()) == hosts.host_size(host.is_v6)

    @given(strategies.hosts)
    def test_text_both_ways(self, host: Host) -> None:
        assert hosts.parse(str(host)) == host

    @pytest.mark.parametrize(
        ("text", "host"),
        [
            ("192.0.2.1:10911", Host(bytes([192, 0, 2, 1]), 10911)),
            ("192.0.2.1|10911", Host(bytes([192, 0, 2, 1]), 10911)),
            ("[2001:db8::1]:10911", Host(bytes.fromhex("20010db8000000000000000000000001"), 10911)),
            ("2001:db8:0:0:0:0:0:1|10911", Host(bytes.fromhex("20010db8000000000000000000000001"), 10911)),
        ],
    )
    def test_known_texts(self, text: str, host: Host) -> None:
        assert hosts.parse(text) == host

    @pytest.mark.parametrize(
        "text",
        ["", "192.0.2.1", "192.0.2.1:", "300.0.0.1:1", "host:1", "1.2.3.4:x", "1.2.3.4:2147483648", "1.2.3.4:1_0"],
    )
    def test_no_host(self, text: str) -> None:
        with pytest.raises(InvalidArgument, match="host"):
            hosts.parse(text)

    @pytest.mark.parametrize("position", [-1, 1])
    def test_too_few_bytes(self, position: int) -> None:
        with pytest.raises(FormatError):
            hosts.decode(bytes(8), position, False)
        with pytest.raises(FormatError):
            hosts.decode(bytes(20), position, True)


class TestNames:
    def test_segments(self) -> None:
        assert names.segment_name(1048576) == "00000000000001048576"
        assert names.segment_offset("00000000000001048576") == 1048576
        assert names.segment_name((1 << 63) - 1) == "09223372036854775807"

    @pytest.mark.parametrize("offset", [-1, 1 << 63])
    def test_no_segment_starts_there(self, offset: int) -> None:
        with pytest.raises(InvalidArgument):
            names.segment_name(offset)

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "1048576",
            "0000000000000104857x",
            "000000000000001048576",
            "٠" * 20,
            "9" * 20,
            "-" + "0" * 19,
            "0" * 20 + "\n",
        ],
    )
    def test_other_files(self, name: str) -> None:
        assert names.segment_offset(name) is None

    @given(st.integers(0, (1 << 63) - 1))
    def test_segments_both_ways(self, offset: int) -> None:
        assert names.segment_offset(names.segment_name(offset)) == offset

    def test_index_files(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
        assert names.index_name(1700000000180) == "20231114221320180"
        assert names.index_name(1700000000007) == "20231114221320007"
        assert names.is_index_name("20231114221320180")
        assert not names.is_index_name("20231114221320180.tmp")
        monkeypatch.undo()
        time.tzset()

    def test_topics(self) -> None:
        assert names.is_lmq("%LMQ%a")
        assert not names.is_lmq("LMQ")
        assert names.is_system_topic("SCHEDULE_TOPIC_XXXX")
        assert names.is_system_topic("%RETRY%g")
        assert not names.is_system_topic("Orders")


class TestSysFlag:
    @pytest.mark.parametrize(
        ("flags", "queued", "indexed"), [(0, True, True), (4, False, True), (8, True, True), (12, False, False)]
    )
    def test_transactions(self, flags: int, queued: bool, indexed: bool) -> None:
        for other in (0, sysflag.COMPRESSED | sysflag.BORN_HOST_V6 | sysflag.COMPRESSION_ZLIB):
            assert sysflag.transaction_type(flags | other) == flags
            assert sysflag.is_consumable(flags | other) is queued
            assert sysflag.is_indexed(flags | other) is indexed
