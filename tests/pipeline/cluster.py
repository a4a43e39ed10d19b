"""A standalone cluster of Spark on the loopback interface: a master and workers, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from engine.pipeline.spark import find_java

_HOME = Path(pyspark.__file__).parent
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER = "Registering worker"
_STARTS_S = 300.0
_ENDS_S = 20.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """`master`: its URL. `processes`: ids of the master and the workers."""

    master: str
    processes: tuple[int, ...]


@contextlib.contextmanager
def standalone(place: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[Cluster]:
    """A cluster that writes below `place`, and knows nothing of the place where the package lies."""
    place.mkdir(parents=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SPARK", "PYSPARK"))}
    environment |= {
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(place / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "NUMBA_CACHE_DIR": str(place / "numba"),
    }
    with contextlib.ExitStack() as stack:

        def start(name: str, kind: str, *words: str) -> tuple[subprocess.Popen[bytes], Path]:
            log = place / f"{name}.log"
            with log.open("wb") as sink:
                process = subprocess.Popen(
                    [_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *words],
                    stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, env=environment, cwd=place,
                )  # fmt: skip
            stack.callback(_end, process)
            return process, log

        here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master, said = start("master", "master.Master", *here)
        url = _wait(master, said, lambda text: [m[1] for m in _MASTER.finditer(text)], 1)[0]
        processes = [master]
        for number in range(workers):
            words = ("--cores", str(cores), "--memory", memory, "--work-dir", str(place / f"work{number}"), url)
            processes.append(start(f"worker{number}", "worker.Worker", *here, *words)[0])
        _wait(master, said, lambda text: re.findall(_WORKER, text), workers)
        yield Cluster(url, tuple(process.pid for process in processes))


def run_driver(cluster: Cluster, script: Path, *words: str, timeout: float = 240.0) -> subprocess.CompletedProcess[str]:
    """A Python script as the cluster's driver, a process of its own; it gets the master's URL and `words`."""
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(
        [sys.executable, script, cluster.master, *words],
        env=environment, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def executors_of(cluster: Cluster) -> list[int]:
    """Ids of the executors' processes: the workers' children."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal():
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in cluster.processes and b"ExecutorBackend" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return sorted(found)


def _wait(process: subprocess.Popen[bytes], log: Path, find: object, many: int) -> list[str]:
    """Until the log has what is looked for as often as wanted."""
    deadline = time.monotonic() + _STARTS_S
    while True:
        text = log.read_text(errors="replace")
        found = find(text)  # type: ignore[operator]
        if len(found) >= many:
            return list(found)
        assert process.poll() is None, f"Spark's master has ended:\n{text}"
        assert time.monotonic() < deadline, f"the cluster does not start:\n{text}"
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
