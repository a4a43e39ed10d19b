"""Ctrl-C, SIGTERM and a hang-up while a job runs on Spark are never lost, wherever they strike."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.pipeline.removal import scratch
from rstore_cli.spark_signals import Signals

pytest.importorskip("py4j")

ROUNDS = 150


@pytest.mark.parametrize("seed", [1])
def test_signals_at_random_moments(seed: int) -> None:
    root = Path(__file__).resolve().parents[2]
    words = (sys.executable, "-m", "tests.rstore_cli.signalled", str(seed), str(ROUNDS))
    ran = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{ROUNDS} rounds\n", "")


def test_what_runs_for_spark_is_ended_and_the_interrupt_comes_in_the_end() -> None:
    """In py4j nothing is raised; its JVM is ended, and what it was asked for fails for that reason alone."""
    code = "import sys, threading; print('up', flush=True); threading.Event().wait()"
    jvm = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert jvm.stdout is not None
    jvm.stdout.readline()
    signals = Signals()
    place: dict[str, Any] = {"__name__": "py4j.java_gateway", "jvm": jvm}
    exec("def ask():\n    raise_signal()\n    jvm.wait()\n    raise OSError('the answer is empty')", place)
    place["raise_signal"] = lambda: os.kill(os.getpid(), signal.SIGTERM)

    def job() -> None:
        with signals:
            signals.watch(jvm)
            place["ask"]()

    with pytest.raises(KeyboardInterrupt):
        job()
    assert jvm.returncode == -signal.SIGTERM
    jvm.stdout.close()


def test_what_clears_away_comes_to_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The job failed because its JVM was ended; signals that come while its directory is removed are raised after."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    remove = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path: (os.kill(os.getpid(), signal.SIGTERM), remove(path)))

    def job() -> None:
        with Signals(), scratch():
            raise OSError("the JVM was ended")

    with pytest.raises(KeyboardInterrupt):
        job()
    assert list(tmp_path.iterdir()) == []


def test_a_handler_stays_as_it_was() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    hook, threads = sys.unraisablehook, threading.active_count()
    with Signals():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
    assert (sys.unraisablehook, threading.active_count()) == (hook, threads)


def test_what_is_ignored_stays_ignored() -> None:
    """As nohup leaves it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
