"""Allow-lists of addresses: what a list means, and what is said of one that means nothing."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.broker.net.allow import LOOPBACK, AllowList, parse_allow_list
from engine.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "allowed", "refused"),
    [
        ("", [], ["127.0.0.1", "::1", "10.0.0.7"]),
        ("10.0.0.7", ["10.0.0.7", "::ffff:10.0.0.7"], ["10.0.0.8", "::10.0.0.7", "::1"]),
        ("10.0.0.0/24", ["10.0.0.0", "10.0.0.255", "::ffff:10.0.0.1"], ["10.0.1.0", "9.255.255.255"]),
        ("fd00::/8", ["fd00::1", "fdff:ffff::"], ["fe00::", "::1", "10.0.0.7"]),
        ("::1, 10.0.0.7;10.0.0.9  192.168.0.0/16,", ["::1", "10.0.0.9", "192.168.3.4"], ["127.0.0.1", "::2"]),
        ("0.0.0.0/0", ["1.2.3.4", "::ffff:1.2.3.4"], ["fe80::1"]),
        ("0.0.0.0/0, ::/0", ["1.2.3.4", "fe80::1"], []),
        ("::ffff:10.0.0.0/104", ["10.1.2.3", "::ffff:10.255.0.0"], ["11.0.0.0"]),
        ("::ffff:10.0.0.7", ["10.0.0.7"], ["10.0.0.8"]),
    ],
)  # fmt: skip
def test_a_list_allows_its_addresses_and_no_other(text: str, allowed: list[str], refused: list[str]) -> None:
    made = parse_allow_list("haAllow", text)
    for address in allowed:
        assert made.allows(address), address
        assert made.allows(ipaddress.ip_address(address).packed), address
    for address in refused:
        assert not made.allows(address), address
        assert not made.allows(ipaddress.ip_address(address).packed), address
    assert bool(made) == bool(text)


@pytest.mark.parametrize("address", ["", "nohost", "10.0.0.7:1", "10.0.0", b"", b"\x01", bytes(15)])
def test_what_is_no_address_is_not_allowed(address: str | bytes) -> None:
    assert not parse_allow_list("haAllow", "0.0.0.0/0, ::/0").allows(address)


def test_a_peer_may_have_a_zone() -> None:
    assert parse_allow_list("haAllow", "fe80::/10").allows("fe80::1%eth0")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.0.0.7, localhost", "namesAllow: 'localhost' is neither an IP address nor a network"),
        ("10.0.0.*", "namesAllow: '10.0.0.*' is neither an IP address nor a network"),
        ("*", "namesAllow: '*' is neither an IP address nor a network"),
        ("10.0.0.7/33", "namesAllow: '10.0.0.7/33' is neither an IP address nor a network"),
        ("10.0.0.7/24", "namesAllow: '10.0.0.7/24' has bits after its prefix: the network is 10.0.0.0/24"),
        ("::1 fd00::1/8", "namesAllow: 'fd00::1/8' has bits after its prefix: the network is fd00::/8"),
        ("fe80::1%eth0", "namesAllow: 'fe80::1%eth0' has a zone, and a list goes by the address alone"),
    ],
)
def test_an_item_that_is_none_is_named_with_its_key(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_allow_list("namesAllow", text)
    assert refused.value.message == why
    assert "10.0.0.0/24" in str(refused.value.hint)


def test_a_list_is_shown_as_it_is_read() -> None:
    text = "10.0.0.7, 10.0.0.0/24, ::1, fd00::/8"
    assert str(parse_allow_list("haAllow", text)) == text
    assert parse_allow_list("haAllow", str(LOOPBACK)) == LOOPBACK
    assert str(AllowList()) == ""


def test_loopback_is_this_machine_alone() -> None:
    for here in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        assert LOOPBACK.allows(here)
    for other in ("128.0.0.1", "0.0.0.0", "::", "::2", "::ffff:1.0.0.127"):
        assert not LOOPBACK.allows(other)


@given(st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), st.data())
def test_an_address_is_in_each_network_that_has_its_first_bits(packed: bytes, data: st.DataObject) -> None:
    address = ipaddress.ip_address(packed)
    assume(not isinstance(address, ipaddress.IPv6Address) or address.ipv4_mapped is None)
    prefix = data.draw(st.integers(0, address.max_prefixlen))
    network = ipaddress.ip_network((packed, prefix), strict=False)
    assert parse_allow_list("haAllow", str(network)).allows(packed)
    other = bytes((packed[0] ^ 0x80, *packed[1:]))
    assert parse_allow_list("haAllow", str(network)).allows(other) == (prefix == 0)


@given(st.text(max_size=40))
def test_a_list_of_any_text_is_read_or_refused(text: str) -> None:
    try:
        made = parse_allow_list("haAllow", text)
    except InvalidArgument:
        return
    assert parse_allow_list("haAllow", str(made)) == made
