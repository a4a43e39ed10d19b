"""The Spark session of a job: Java found, settings that the pipeline needs, nothing on the screen that is not ours.

What a job needs of Spark is little: Arrow between Python and the JVM, filters pushed down to Python data sources (off
by default in Spark 4), and this package in every Python worker: on this machine through PYTHONPATH, on a cluster as a
zip that is sent along (engine.pipeline.package). `--conf` has the last word on everything.

The JVM is started here and not by pyspark, so that what it says goes into a file: of that one line is shown when it
does not start. It ends with the session, and what it wrote meanwhile with it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sysconfig
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from engine.backup.secret import KEY_VARIABLE
from engine.errors import InvalidArgument, RStoreError
from engine.pipeline.driver import is_local, python_of_workers
from engine.pipeline.failures import NOTES, UNKNOWN, SparkFailed, text_of, translate
from engine.pipeline.java import SparkMissing, await_end, find_java
from engine.pipeline.ready import demand_packages
from engine.pipeline.removal import scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = [
    "LOCAL",
    "SPLIT_BYTES",
    "SparkMissing",
    "SparkSession",
    "demand_packages",
    "find_java",
    "parse_conf",
    "session",
]

LOCAL = "local[*]"
SPLIT_BYTES = "spark.rstore.splitBytes"
"""A session's setting: about how many bytes of a log a task reads, for jobs whose options don't say it."""
_MIB = 1 << 20
_LEAST_DRIVER_MIB, _MOST_DRIVER_MIB = 1024, 4096
_ANSWERS_S = 5.0
"""How long a master may take to answer."""
_PY_FILES = "spark.submit.pyFiles"
_KEY_IN_CONF = f"spark.executorEnv.{KEY_VARIABLE}"
_DEFAULTS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "16",
    "spark.log.level": "ERROR",
}
_SOCKETS = "spark.python.unix.domain.socket"
_LONGEST = 61
"""Characters of the path of the sockets' directory, at most: Spark's own limit, as a socket's path has but some 100."""
_LOOPBACK = ("127.", "localhost", "[::1]")
_DEBUG = "RSTORE_DEBUG"


@contextlib.contextmanager
def session(
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    name: str = "rstore",
    started: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> Iterator[SparkSession]:
    """A Spark session with the data source registered, stopped at the end; one that is active is used, and stays.

    Args:
        master: where Spark runs (default: `spark.master` of `conf`, else `LOCAL`).
        conf: Spark's settings, over ours.
        name: the application's, in Spark's own pages.
        started: gets the JVM's process as soon as it runs: whoever ends it ends the job.

    Raises:
        SparkMissing: no Java, no pyspark. SparkFailed: Spark does not start. InvalidArgument: a master or a setting
        that Spark refuses.
    """
    given = dict(conf or {})
    if _KEY_IN_CONF in given:
        raise InvalidArgument(
            f"--conf {_KEY_IN_CONF} shows in Spark's pages: a key is no setting",
            hint="give executors a file with the key (--key-file), or the variable by what starts them",
        )
    master = master or given.get("spark.master", "")
    demand_packages()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        register(active)
        yield active
        return
    java = find_java()
    _demand_master(master)
    master = master or LOCAL
    with scratch() as directory:
        wanted = {
            **_DEFAULTS,
            f"spark.executorEnv.{NOTES}": "1",
            **_places(directory),
            **_sockets(directory, master),
            **given,
            "spark.master": master,
            "spark.app.name": name,
        }
        if not is_local(master) and _PY_FILES not in given:
            from engine.pipeline.package import build_zip

            wanted[_PY_FILES] = os.fspath(build_zip(Path(directory) / "rstore-spark.zip"))
        with _Jvm(Path(directory) / "spark.log", _environment(java, master, given), wanted, started) as jvm:
            yield jvm.spark


def parse_conf(words: list[str]) -> dict[str, str]:
    """`KEY=VALUE` each. Raises InvalidArgument."""
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.startswith("spark."):
            raise InvalidArgument(f"--conf {word}: not a setting of Spark", hint="for example spark.executor.memory=2g")
        settings[key] = value
    return settings


class _Jvm:
    """The JVM that a session lives in. A context manager: starts it and the session, and ends both.

    Args:
        log: the file that gets what it says.
        environment: variables over this process's own, for it and the Python workers that it starts.
        conf: all settings of the session.
        started: as `session`.
    """

    spark: SparkSession

    def __init__(
        self,
        log: Path,
        environment: Mapping[str, str],
        conf: Mapping[str, str],
        started: Callable[[subprocess.Popen[bytes]], None] | None = None,
    ) -> None:
        self._started = started
        self._log = log
        self._environment = environment
        self._conf = conf
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Jvm:
        before = signal.getsignal(signal.SIGINT)
        try:
            with _variables(self._environment):
                self._start()
        except Exception as error:
            why = self._why(error)  # asks the JVM
            self._end()
            raise why from error
        except BaseException:
            self._end()
            raise
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, before)  # Spark's own waits for the job
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _interrupts_wait = True  # see engine.pipeline.removal
        if kind is None or issubclass(kind, Exception):
            with contextlib.suppress(Exception):  # the JVM may be gone
                self.spark.stop()
        self._end()

    def _start(self) -> None:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        conf = SparkConf().setAll(list(self._conf.items()))
        with self._log.open("wb") as log:
            sink = None if os.environ.get(_DEBUG, "") not in ("", "0") else log
            # in a group of its own: Ctrl-C is ours to handle, not that of its Python workers
            launch: Any = launch_gateway
            with self._noting_process():
                gateway = launch(conf, {"stdout": sink, "stderr": sink, "process_group": 0})
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)
        self.spark = SparkSession.builder.config(conf=conf).getOrCreate()
        _silence(self.spark)
        register(self.spark)

    @contextlib.contextmanager
    def _noting_process(self) -> Iterator[None]:
        """Know the JVM as soon as it runs: an interrupt before `launch_gateway` returns would leave it running."""
        from pyspark import java_gateway

        module: Any = java_gateway
        start = module.Popen

        def noted(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
            self._process = process = start(*args, **options)
            if self._started is not None:
                self._started(process)
            return cast("subprocess.Popen[bytes]", process)

        module.Popen = noted
        try:
            yield
        finally:
            module.Popen = start

    def _end(self) -> None:
        """The JVM ends, and Python forgets it: the next session starts a new one."""
        _interrupts_wait = True  # its scratch is removed next
        process = self._process
        if process is None:
            return
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        process.terminate()
        await_end(process)
        self._process = None
        # what pyspark keeps of a session; it has no public way to give up a JVM
        for holder, names in (
            (SparkContext, ("_gateway", "_jvm", "_active_spark_context", "_next_accum_id")),
            (SparkSession, ("_instantiatedSession", "_activeSession")),
        ):
            for one in names:
                if hasattr(holder, one):
                    setattr(holder, one, 0 if one == "_next_accum_id" else None)

    def _why(self, error: Exception) -> RStoreError:
        """Why it does not start, in Spark's own words."""
        if isinstance(error, RStoreError):
            return error
        log = ""
        with contextlib.suppress(OSError):
            log = self._log.read_text(encoding="utf-8", errors="replace")
        reason = translate(RuntimeError(f"{text_of(error)}\n{log}"))
        if reason.message.startswith(UNKNOWN):
            reason.message = "Spark does not start: " + reason.message.removeprefix(UNKNOWN)
        return reason


def _silence(spark: SparkSession) -> None:
    """What pyspark itself prints when something fails: each is an error that is raised, too."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None  # the JVM is gone


def register(spark: SparkSession) -> None:
    """Make the data source known in a session, under both its names: `rocketmq-store` and `rstore`."""
    from engine.pipeline.source import RocketMQStoreSource, RStoreSource

    spark.dataSource.register(RocketMQStoreSource)
    spark.dataSource.register(RStoreSource)


# --- what it is started with -----------------------------------------------------------------------------------------


def _places(scratch: str) -> dict[str, str]:
    """Where Spark may write, and how much memory the driver takes."""
    quarter = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB // 4
    return {
        "spark.local.dir": os.path.join(scratch, "local"),
        "spark.sql.warehouse.dir": os.path.join(scratch, "warehouse"),
        "spark.driver.memory": f"{max(_LEAST_DRIVER_MIB, min(_MOST_DRIVER_MIB, quarter))}m",
    }


def _sockets(scratch: str, master: str) -> dict[str, str]:
    """Unix sockets between JVM and Python workers, in our own directory, where both are on this machine.

    By TCP each task waits 40 ms: the JVM writes its input in two small pieces, and the second waits until the first is
    acknowledged. Not on a cluster, whose executors' directories may have names too long for a socket's; nor where the
    name is no ASCII (Java takes it for another one, by locale), or the file system has no sockets.
    """
    if not is_local(master) or len(scratch) > _LONGEST or not scratch.isascii() or not _takes_sockets(scratch):
        return {}
    return {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": scratch}


def _takes_sockets(directory: str) -> bool:
    path = os.path.join(directory, "socket")
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path)
        os.unlink(path)
    except OSError:
        return False
    return True


def _environment(java: Path, master: str, given: Mapping[str, str]) -> dict[str, str]:
    """Variables for the JVM and its Python workers."""
    variables = {"JAVA_HOME": os.fspath(java), NOTES: "1"}
    python = python_of_workers(given.get("spark.pyspark.python"))
    if python is not None:
        variables["PYSPARK_PYTHON"] = python
    hosts = _hosts(master)
    here = is_local(master) or (hosts and all(host.startswith(_LOOPBACK) for host, _ in hosts))
    if here and "SPARK_LOCAL_IP" not in os.environ:
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    package = Path(__file__).resolve().parents[2]
    if os.fspath(package) not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [os.fspath(package), os.environ.get("PYTHONPATH")]))
    return variables


@contextlib.contextmanager
def _variables(changes: Mapping[str, str]) -> Iterator[None]:
    """The environment with `changes`, and as it was, afterwards."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _hosts(master: str) -> list[tuple[str, int]]:
    """Host and port of each master of a standalone cluster; none otherwise."""
    if not master.startswith("spark://"):
        return []
    hosts = []
    for place in master.removeprefix("spark://").split(","):
        host, colon, port = place.rpartition(":")
        if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
            raise InvalidArgument(f"--master {master}: not HOST:PORT: {place!r}", hint="for example spark://HOST:7077")
        hosts.append((host, int(port)))
    return hosts


def _demand_master(master: str) -> None:
    """Spark itself tries for a minute. Raises SparkFailed: nobody answers there. InvalidArgument."""
    hosts = _hosts(master)
    reasons = []
    for host, port in hosts:
        try:
            socket.create_connection((host.strip("[]"), port), _ANSWERS_S).close()
        except OSError as error:
            reasons.append(f"{host}:{port}: {(error.strerror or str(error)).lower()}")
        else:
            return
    if hosts:
        raise SparkFailed(f"no Spark master answers at {master} ({'; '.join(reasons)})", hint="is the cluster up?")
