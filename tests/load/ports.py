"""Ports that nobody has: for a broker that must be found again where it was."""

from __future__ import annotations

import random
import socket


def free_ports(count: int) -> list[int]:
    """So many, with free ones two below (the VIP port) and one above."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        if all(abs(port - other) > 4 for other in found) and all(_is_free(port + more) for more in (-2, 0, 1)):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
