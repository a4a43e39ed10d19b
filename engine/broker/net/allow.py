"""Allow-lists of addresses, as settings write them: haAllow, namesAllow, adminAllow.

    10.0.0.7                    one address, IPv4 or IPv6
    10.0.0.0/24, fd00::/8       all addresses of a network (CIDR)
    0.0.0.0/0, ::/0             everybody

Items stand between commas, semicolons or blanks; an empty list allows nobody. Patterns of ACL files are written
otherwise, as Apache's broker reads them: `engine.broker.acl.addresses`. What an IPv4 address looks like on a socket of
both families (::ffff:10.0.0.7) is that address, in lists and of peers.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from engine.dataclass import dataclass
from engine.errors import InvalidArgument

_BETWEEN = re.compile(r"[,;\s]+")
_MAPPED = IPv6Network("::ffff:0:0/96")
_HINT = "write addresses and networks, such as 10.0.0.7, 10.0.0.0/24, fd00::/8; 0.0.0.0/0, ::/0 is everybody"


@dataclass(frozen=True, slots=True)
class AllowList:
    """See the module. `networks`: an address alone is a network of one."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def allows(self, address: bytes | str) -> bool:
        """Whether a peer's address is among them: 4 or 16 bytes, or as text; what is no address is not."""
        try:
            peer = ip_address(address)
        except ValueError:
            return False
        peer = _unmapped(peer)
        return any(peer in network for network in self.networks)

    def __bool__(self) -> bool:
        return bool(self.networks)

    def __str__(self) -> str:
        return ", ".join(
            str(one.network_address if one.prefixlen == one.max_prefixlen else one) for one in self.networks
        )


LOOPBACK = AllowList((IPv4Network("127.0.0.0/8"), IPv6Network("::1")))
"""This machine."""


def parse_allow_list(key: str, text: str) -> AllowList:
    """The list that the setting `key` has.

    Raises:
        InvalidArgument: an item is neither an address nor a network; with the key and the item.
    """
    return AllowList(tuple(_network(key, item) for item in _BETWEEN.split(text.strip()) if item))


def _network(key: str, item: str) -> IPv4Network | IPv6Network:
    try:
        network = ip_network(item)
    except ValueError:
        raise InvalidArgument(f"{key}: {_why(item)}", hint=_HINT) from None
    if isinstance(network, IPv6Network) and network.network_address.scope_id is not None:
        raise InvalidArgument(f"{key}: {item[:100]!r} has a zone, and a list goes by the address alone", hint=_HINT)
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        mapped = _unmapped(network.network_address)
        return ip_network((mapped.packed, network.prefixlen - _MAPPED.prefixlen))
    return network


def _why(item: str) -> str:
    """What is wrong with an item that is no network: too many bits of a network are the usual slip."""
    try:
        network = ip_network(item, strict=False)
    except ValueError:
        return f"{item[:100]!r} is neither an IP address nor a network"
    return f"{item!r} has bits after its prefix: the network is {network}"


def _unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
