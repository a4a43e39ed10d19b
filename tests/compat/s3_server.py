"""A real S3 server (versitygw) for tests, with one bucket."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compat import real_broker, toolchain

START_S = 60
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "operator",
    "AWS_SECRET_ACCESS_KEY": "secret-of-a-test",
    "AWS_REGION": "us-east-1",
}


@contextmanager
def served(below: Path) -> Iterator[int]:
    """A server with the bucket `backups`, its files below `below`: its port. Skips where it can't be built."""
    try:
        program = toolchain.s3_server()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    port = real_broker.free_port(1)
    (below / "s3" / "backups").mkdir(parents=True)
    (below / "meta").mkdir()
    keys = ["--access", CREDENTIALS["AWS_ACCESS_KEY_ID"], "--secret", CREDENTIALS["AWS_SECRET_ACCESS_KEY"]]
    words = [program, "--port", f"127.0.0.1:{port}", *keys, "posix", "--sidecar", str(below / "meta")]
    with (
        (below / "s3.log").open("wb") as log,
        subprocess.Popen([*words, str(below / "s3")], stdout=log, stderr=log) as server,
    ):
        try:
            _until_it_answers(port, server)
            yield port
        finally:
            server.kill()


def _until_it_answers(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)
        except urllib.error.HTTPError:  # it wants credentials
            return
        except OSError:
            assert server.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        else:
            return
