"""The thread that shows how far a job is, when the JVM goes away under it."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from engine.pipeline import progress
from engine.pipeline.progress import watched


class Gone:
    """A session whose JVM is gone: each question is an error, as py4j raises it (py4j needs no JVM to fail)."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    @property
    def sparkContext(self) -> Any:
        self.asked.set()
        raise ConnectionResetError(104, "Connection reset by peer")


def test_a_jvm_that_is_gone_ends_the_thread_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    monkeypatch.setattr(progress, "EVERY_S", 0.001)
    session = Gone()
    with watched(cast("Any", session), lambda *_: None):
        assert session.asked.wait(60)
        for thread in threading.enumerate():
            if thread.name == "rstore-progress":
                thread.join(60)
    assert raised == []
