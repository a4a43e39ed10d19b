"""Signals at random moments: `python -m tests.rstore_cli.signalled SEED ROUNDS`, a line a round that lost its signal.

What runs is what runs in a driver: objects of py4j that go, each with its weakref callback, and such as have a
`__del__`. py4j's client is a real one, of a JVM that is gone.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import weakref
from typing import Any

from py4j.java_gateway import GatewayClient, GatewayParameters, _garbage_collect_object

from rstore_cli.spark_signals import Signals

LATE_S = 10.0


class Held:
    """Something with a weakref callback of py4j."""


class Ends:
    """Something with a `__del__` that takes a while."""

    def __del__(self) -> None:
        sum(range(300))


def work(client: Any) -> None:
    """Some objects go, and some work of our own is done."""
    held = Held()
    kept = weakref.ref(held, lambda _: _garbage_collect_object(client, "o1"))
    del held
    Ends()
    sum(range(300))
    del kept


def run(number: int, delay: float, client: Any) -> bool:
    """Whether the signal ended it."""
    sender = threading.Timer(delay, os.kill, (os.getpid(), number))
    until = time.monotonic() + LATE_S
    try:
        with Signals():
            sender.start()
            while time.monotonic() < until:
                work(client)
    except KeyboardInterrupt:
        return time.monotonic() < until
    finally:
        sender.join()
    return False


def main(seed: int, rounds: int) -> None:
    """All rounds."""
    rng = random.Random(seed)
    client = GatewayClient(gateway_parameters=GatewayParameters(port=1))
    client.is_connected = False  # it need not try
    for i in range(rounds):
        number = rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        if not run(number, rng.uniform(0.0, 0.003), client):
            print(f"seed {seed}, round {i}: {signal.Signals(number).name} was lost", flush=True)
    print(f"{rounds} rounds")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
