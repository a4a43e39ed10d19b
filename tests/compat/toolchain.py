"""Finds Java and Maven, and builds the Java side of the interop tests once."""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

JAVA_DIR = Path(__file__).parent / "java"
CLIENTS_DIR = Path(__file__).parent / "clients"
BROKER_DIR = Path(__file__).parent / "broker"
BROKER5_DIR = Path(__file__).parent / "broker5"
STORE5_DIR = Path(__file__).parent / "store5"
GO_DIR = Path(__file__).parent / "go"
CONSOLE_DIR = Path(__file__).parent / "console"
NODE_DIR = Path(__file__).parent / "node"
NODE5_DIR = Path(__file__).parent / "node5"
PROXY5_DIR = Path(__file__).parent / "proxy5"
GRPC_DIR = Path(__file__).parent / "grpc"
BUILD_TIMEOUT = 600.0
VERSITYGW = "v1.8.0"
OLDEST_JAVA = 17
BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a Java that lives for a minute: without the second compiler, whose work it would not live to use, and with
the collector that starts no threads, a broker's or a client's start takes a third less CPU."""


class Missing(Exception):
    """Java, Maven or Apache's jars are not to be had here; the message says which, in one sentence."""


@functools.cache
def java() -> Path:
    """The `java` program of JAVA_HOME, or else of PATH."""
    home = os.environ.get("JAVA_HOME")
    candidate = Path(home) / "bin" / "java" if home else None
    if candidate is None or not candidate.is_file():
        found = shutil.which("java")
        if found is None:
            raise Missing("Java is not installed: no java program in JAVA_HOME or PATH.")
        candidate = Path(found)
    said = subprocess.run([candidate, "-version"], capture_output=True, text=True, timeout=60, check=False)
    version = re.search(r'version "(\d+)', said.stderr + said.stdout)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise Missing(f"Java {OLDEST_JAVA} or newer is needed, and {candidate} is older or does not run.")
    return candidate


@functools.cache
def java_version() -> str:
    """The full version of `java()`, such as 17.0.15."""
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, timeout=60, check=True)
    version = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
    return version[1] if version else "unknown"


@functools.cache
def harness() -> str:
    """The class path of the Java side, built first if it is not there or older than its sources."""
    return _class_path(JAVA_DIR, "rstore-compat", "rocketmq-store")


@functools.cache
def clients() -> str:
    """The class path of Apache's clients and mqadmin, built as `harness`."""
    return _class_path(CLIENTS_DIR, "rstore-clients", "rocketmq-tools")


@dataclass(frozen=True, slots=True)
class ApacheBroker:
    """Apache's broker and name server: their class path and their release, such as `4.9.8`."""

    class_path: str
    version: str


@functools.cache
def apache_broker() -> ApacheBroker:
    """That of ROCKETMQ_HOME, a distribution of Apache's, or else what Maven has (its pom.xml says why it is older)."""
    home = os.environ.get("ROCKETMQ_HOME")
    if home:
        java()
        jars, class_path = Path(home) / "lib", f"{Path(home) / 'lib'}{os.sep}*"
    else:
        class_path = _class_path(BROKER_DIR, "rstore-broker", "rocketmq-broker")
        jars = BROKER_DIR / "target" / "lib"
    own, rest = _release(jars, "rocketmq-broker"), _release(jars, "rocketmq-store")
    return ApacheBroker(class_path, own if own == rest else f"{rest} with the broker of {own}")


@functools.cache
def apache_broker5(version: str = "5.5.0") -> ApacheBroker:
    """Apache's broker and name server of RocketMQ 5, from Maven: 5.5.0 or another release."""
    class_path = _class_path(BROKER5_DIR, "rstore-broker5", "rocketmq-broker", version)
    return ApacheBroker(class_path, _release(BROKER5_DIR / "target" / version / "lib", "rocketmq-broker"))


@functools.cache
def proxy5(version: str = "5.5.0") -> str:
    """The class path of RocketMQ 5's gRPC proxy."""
    return _class_path(PROXY5_DIR, "rstore-proxy5", "rocketmq-proxy", version)


@functools.cache
def grpc_clients() -> str:
    """The class path of our program with the Java client of RocketMQ 5 that speaks gRPC."""
    return _class_path(GRPC_DIR, "rstore-grpc", "rocketmq-client-java")


@functools.cache
def store5(version: str) -> str:
    """The class path of a release of RocketMQ 5's message store, and of the program that starts it (Starts5.java)."""
    return _class_path(STORE5_DIR, "rstore-store5", "rocketmq-store", version)


@functools.cache
def clients5(version: str = "5.5.0") -> str:
    """The class path of our programs with the clients of RocketMQ 5: those that use what both releases have."""
    own, _, _ = clients().partition(os.pathsep)
    return f"{own}{os.pathsep}{apache_broker5(version).class_path}"


def _release(jars: Path, name: str) -> str:
    found = [jar.stem.removeprefix(f"{name}-") for jar in jars.glob(f"{name}-*.jar")]
    if len(found) != 1:
        raise Missing(f"{jars} has not one {name} jar.")
    return found[0]


@functools.cache
def go_clients() -> Path:
    """The program of client-go, built first if it is not there or older than its source."""
    go = shutil.which("go")
    if go is None:
        raise Missing("Go is not installed: PATH does not lead to a go program.")
    program = GO_DIR / "clients"
    with _alone(GO_DIR / ".building"):
        newest = max(source.stat().st_mtime_ns for source in (*GO_DIR.glob("*.go"), GO_DIR / "go.mod"))
        if not program.is_file() or program.stat().st_mtime_ns < newest:
            _fetched([go, "build", "-o", str(program), "."], GO_DIR, "client-go")
    return program


@functools.cache
def s3_server() -> Path:
    """versitygw, a server that speaks S3 over a directory; built first if it is not there."""
    go = shutil.which("go")
    if go is None:
        raise Missing("Go is not installed: PATH does not lead to a go program.")
    place = GO_DIR / "s3"
    program = place / "versitygw"
    place.mkdir(exist_ok=True)
    with _alone(place / ".building"):
        if not program.is_file():
            install = [
                "env",
                f"GOBIN={place}",
                go,
                "install",
                f"github.com/versity/versitygw/cmd/versitygw@{VERSITYGW}",
            ]
            _fetched(install, place, "versitygw")
    return program


@functools.cache
def node_clients() -> list[str]:
    """The words that run ali-ons; what it needs is fetched first if it is not there."""
    return _node(NODE_DIR, "ali-ons")


@functools.cache
def node_clients5() -> list[str]:
    """The words that run the client of RocketMQ 5, as `node_clients`."""
    return _node(NODE5_DIR, "rocketmq-client-nodejs")


def _node(directory: Path, package: str) -> list[str]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Missing("Node.js is not installed: PATH does not lead to node and npm.")
    with _alone(directory / ".building"):
        if not (directory / "node_modules" / package).is_dir():
            _fetched([npm, "install", "--no-audit", "--no-fund", "--no-package-lock"], directory, package)
    return [node, str(directory / "clients.js")]


def browser() -> str:
    """A browser that can be driven: Debian's Chromium, or Chrome."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path is not None:
            return path
    raise Missing("no browser is installed: PATH leads to no chromium (Debian: apt-get install chromium).")


def axe() -> str:
    """The script of axe-core, which judges whether everybody can use a page; fetched first if it is not there."""
    npm = shutil.which("npm")
    if npm is None:
        raise Missing("Node.js is not installed: PATH does not lead to npm.")
    script = CONSOLE_DIR / "node_modules" / "axe-core" / "axe.min.js"
    with _alone(CONSOLE_DIR / ".building"):
        if not script.is_file():
            _fetched([npm, "install", "--no-audit", "--no-fund", "--no-package-lock"], CONSOLE_DIR, "axe-core")
    return script.read_text(encoding="utf-8")


def _fetched(command: list[str], directory: Path, what: str) -> None:
    """Raises Missing: it can't be had here."""
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=BUILD_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{what} can't be fetched: it did not end within ten minutes.") from None
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        raise Missing(f"{what} can't be fetched or built here: {' '.join(last)}")


def _class_path(directory: Path, name: str, needs: str, version: str | None = None) -> str:
    """`version`: the release that the pom.xml is built with, in a directory of its own."""
    java()
    target = directory / "target" / (version or "")
    jar = target / f"{name}.jar"
    target.mkdir(parents=True, exist_ok=True)
    with _alone(target / ".building"):
        if not _is_fresh(directory, jar, needs):
            _build(directory, jar, () if version is None else (f"-Drocketmq.version={version}",))
    return f"{jar}{os.pathsep}{target / 'lib'}{os.sep}*"


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Keeps other processes (the workers of one test run) out of the build."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_fresh(directory: Path, jar: Path, needs: str) -> bool:
    sources = [directory / "pom.xml", *(directory / "src").rglob("*.java")]
    return (
        jar.is_file()
        and any((jar.parent / "lib").glob(f"{needs}-*.jar"))
        and jar.stat().st_mtime_ns >= max(source.stat().st_mtime_ns for source in sources)
    )


def _build(directory: Path, jar: Path, words: tuple[str, ...]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing("Maven is not installed: no mvn program in PATH.")
    shutil.rmtree(jar.parent / "lib", ignore_errors=True)  # no jars of what was wanted before
    for mode in (["-o"], []):  # offline first: fast, and all that is needed after one run online
        built = _run_maven([maven, "-q", "-B", *mode, *words, "package"], directory)
        if built.returncode == 0:
            jar.touch()
            return
    said = (built.stdout + built.stderr).strip()
    if re.search(r"could not (transfer|resolve|find artifact)|unknown host", said, re.IGNORECASE):
        raise Missing("Apache's jars are missing and can't be downloaded: Maven's repository can't be reached.")
    raise RuntimeError(f"the Java side of the interop tests does not build:\n{said}")


def _run_maven(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=BUILD_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise Missing("Apache's jars can't be downloaded: Maven did not finish within ten minutes.") from None


def main() -> None:
    """Builds all that a test may ask for, so that none has to wait; tells what can't be had here."""
    from engine.bench import apache, kafka  # the other tests need none of it
    from tests.compat.shared_classes import make_of_brokers, make_of_stores  # they need this module

    parts = (
        *(harness, clients, apache_broker, apache_broker5, partial(apache_broker5, "5.3.3")),
        *(partial(store5, release) for release in ("5.3.3", "5.5.0")),
        *(partial(clients5, release) for release in ("5.3.3", "5.5.0")),
        *(proxy5, grpc_clients, node_clients5),
    )
    archives = (make_of_stores, make_of_brokers, *(partial(make_of_brokers, one) for one in ("5.5.0", "5.3.3")))
    for build in (*parts, go_clients, s3_server, node_clients, axe, apache.find, kafka.find, *archives):
        try:
            build()
        except (Missing, apache.Missing) as missing:
            print(missing)


if __name__ == "__main__":
    main()
