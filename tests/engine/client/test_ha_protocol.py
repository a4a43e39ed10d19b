"""The first words of a connection to a replication service, in any pieces, and with a service that says none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from engine.client.ha_protocol import ControllerHa, PlainHa, ha_protocol
from engine.client.stream import Stream
from engine.errors import PeerLost
from engine.format.epoch_file import EpochEntry
from engine.wire.ha import BadTransfer, TransferReader
from engine.wire.ha_controller import EPOCH, GREETED, GREETING, ControllerReader, MasterEpochs

WORDS = GREETED.pack(1, EPOCH.size, 500, 4) + EPOCH.pack(4, 300)


@pytest.fixture
def pair() -> Iterator[tuple[Stream, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with ours, theirs:
        yield Stream(ours, 5.0), theirs


def test_which_it_is() -> None:
    assert isinstance(ha_protocol({}), PlainHa)
    assert isinstance(ha_protocol({"enableControllerMode": "false"}), PlainHa)
    controlled = ha_protocol({"enableControllerMode": "true"})
    assert isinstance(controlled, ControllerHa)
    assert type(controlled.reader()) is ControllerReader
    assert type(PlainHa().reader()) is TransferReader


@pytest.mark.parametrize("last_file", [False, True])
def test_a_greeting_in_pieces(pair: tuple[Stream, socket.socket], last_file: bool) -> None:
    ours, theirs = pair

    def answer() -> None:
        heard.append(theirs.recv(100))
        for at in range(len(WORDS)):
            theirs.send(WORDS[at : at + 1])

    heard: list[bytes] = []
    thread = threading.Thread(target=answer)
    thread.start()
    assert ControllerHa(last_file=last_file).greet(ours, 20.0) == MasterEpochs(500, (EpochEntry(4, 300),))
    thread.join()
    assert heard == [GREETING.pack(1, last_file, 1, -1)]


def test_a_service_that_ends_or_says_something_else(pair: tuple[Stream, socket.socket]) -> None:
    ours, theirs = pair
    theirs.send(bytes(20))
    with pytest.raises(BadTransfer):
        ControllerHa().greet(ours, 5.0)
    with pytest.raises(TimeoutError):
        ControllerHa().greet(ours, 0.05)
    theirs.send(WORDS[:25])
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(PeerLost, match="closed"):
        ControllerHa().greet(ours, 5.0)
