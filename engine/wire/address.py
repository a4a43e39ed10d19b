"""Where a peer is, as settings, arguments and peers write it: HOST:PORT."""

from __future__ import annotations

from engine.errors import InvalidArgument

PORT_MAX = 0xFFFF
_DIGITS = 5
_HOST_MAX = 253


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 host may stand in brackets, and is given without them.

    Raises:
        InvalidArgument: it is none.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    # Name servers write addresses, too: what the system's look-up can't take at all is no error of its own there.
    is_port = port.isascii() and port.isdecimal() and len(port) <= _DIGITS and 0 < int(port) <= PORT_MAX
    if not (is_port and _is_host(host)):
        raise InvalidArgument(f"{text[:100]!r} is not HOST:PORT")
    return host, int(port)


def _is_host(text: str) -> bool:
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return 0 < len(text) <= _HOST_MAX and not any(letter.isspace() or letter in "\0/" for letter in text)
