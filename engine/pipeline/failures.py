"""What goes wrong on Spark, as the engine's own errors: one line, what, where, and what to do next.

Theory. An error that is raised in a Python worker (a task, or the planner of the data source) reaches the driver as the
text of its traceback inside of a Java exception. `carried()` hangs a note on an engine error that leaves it: Python
prints notes after the error's own line, and Spark hands that text through as it is. `translate` finds the note and
makes the same error of it, with its class, path, offset and hint. What has no note is recognized by what Spark says.

In a session that is not ours people read what Spark logs: there the note is left out, and the traceback with it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
from typing import TYPE_CHECKING, ClassVar

from engine.dataclass import dataclass
from engine.errors import InvalidArgument, NextStep, RStoreError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN = "Spark failed: "
NOTES = "RSTORE_NOTES"
"""Variable of Spark's processes in a session of ours."""
_WORKER = frozenset({"PYTHON_WORKER_FACTORY_SECRET", "PYTHON_UNIX_DOMAIN_ENABLED"})
"""Variables of Spark's Python workers: one of them is always set."""
_MARK = "rstore-error:"
_NOTE = re.compile(_MARK + r"([A-Za-z0-9_-]+=*)")
_UNMARKED = re.compile(r"(?:^|: |')engine\.[\w.]+\.(\w+): (.+?)'?$", re.MULTILINE)
_LAST_OF_TRACE = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Warning)): ?(.*)$", re.MULTILINE)
_CAUSE = re.compile(r"^(?:: |Caused by: )[\w.$]+(?:Error|Exception): ?(.+)$", re.MULTILINE)
_SQLSTATE = re.compile(r"\.? SQLSTATE: \w+$")
_JAVA = ("org.", "java.", "scala.", "py4j.")
_SHOWN = 300
_MORE_MEMORY = "smaller splits (--split-bytes 32M), or more memory (--conf spark.executor.memory=4g)"
_FOR_THE_PACKAGE = "make dist builds what they need: --conf spark.submit.pyFiles=dist/rstore-spark.zip"


class SparkFailed(StorageError):
    """Spark, its cluster or the machines below it let a job down."""

    code: ClassVar[str] = "spark"


@contextlib.contextmanager
def carried() -> Iterator[None]:
    """What runs in a Python worker of Spark stands in here: an engine error keeps all it says on its way to the driver.

    As a `with`, or over a function. A generator's body goes into a `with`: `with carried(): yield from …`.
    """
    try:
        yield
    except RStoreError as error:
        if _WORKER & os.environ.keys() and NOTES not in os.environ:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # this process ends with its error
        elif not any(note.startswith(_MARK) for note in getattr(error, "__notes__", ())):
            error.add_note(_MARK + _packed(error))
        raise


def translate(error: BaseException) -> RStoreError:
    """The engine's error for whatever a job raised: itself, what an executor told, or what Spark's words mean."""
    if isinstance(error, RStoreError):
        return error
    text = text_of(error)
    return _noted(text) or _unmarked(text) or _known(text) or _unknown(error, text)


def engine_error(error: BaseException) -> RStoreError | None:
    """The engine's error that a worker has told through an error of Spark; None when it is another's."""
    words = (getattr(error, "_desc", None), getattr(error, "_stackTrace", None))
    text = "\n".join(word for word in words if isinstance(word, str)) or text_of(error)  # which asks the JVM
    return _noted(text) or _unmarked(text)


def is_of_spark(error: BaseException) -> bool:
    """Whether it is Spark's, or an engine error that came through it: anything else is a fault of ours."""
    gone = isinstance(error, ConnectionError) and not isinstance(error, BrokenPipeError)  # its JVM
    return gone or any(kind.__module__.partition(".")[0] in ("pyspark", "py4j") for kind in type(error).__mro__)


def text_of(error: BaseException) -> str:
    """All that an error of Spark says, also when its JVM is gone and can't be asked any more."""
    parts = []
    for word in (getattr(error, "_desc", None), getattr(error, "_stackTrace", None)):
        if isinstance(word, str):
            parts.append(word)
    with contextlib.suppress(Exception):  # asks the JVM
        parts.append(str(error))
    for cause in (error.__cause__, error.__context__):
        if cause is not None and cause is not error:
            with contextlib.suppress(Exception):
                parts.append(str(cause))
    return "\n".join(parts)


# --- what executors told ---------------------------------------------------------------------------------------------


def _packed(error: RStoreError) -> str:
    fields = {
        "kind": type(error).__name__,
        "message": error.message,
        "path": error.path,
        "offset": error.offset,
        "hint": error.hint,
        "next": None if error.next is None else error.next.to_json(),
    }
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()


def _noted(text: str) -> RStoreError | None:
    match = _NOTE.search(text)
    if match is None:
        return None
    try:
        fields = json.loads(base64.urlsafe_b64decode(match[1]))
    except ValueError:
        return None
    error = _of(fields["kind"], fields["message"], fields["path"], fields["offset"], fields["hint"])
    if fields["next"] is not None:
        error.next = NextStep(**fields["next"])  # the hint ends with it already
    return error


def _unmarked(message: str) -> RStoreError | None:
    """An engine error by the last line of its traceback: its text has path, offset and hint in it already."""
    for name, text in _UNMARKED.findall(message):
        if name in _kinds(RStoreError):
            return _of(name, text.strip(), None, None, None)
    return None


def _of(name: str, message: str, path: str | None, offset: int | None, hint: str | None) -> RStoreError:
    kind = _kinds(RStoreError).get(name, RStoreError)
    error = kind.__new__(kind)
    RStoreError.__init__(error, message, path=path, offset=offset, hint=hint)
    return error


def _kinds(kind: type[RStoreError]) -> dict[str, type[RStoreError]]:
    kinds = {kind.__name__: kind}
    for below in kind.__subclasses__():
        kinds |= _kinds(below)
    return kinds


# --- what Spark says -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    """Words of Spark, what they mean, and what to do. `{0}` in `message` is what the first group matched."""

    words: str
    kind: type[RStoreError]
    message: str
    hint: str | None = None


_KNOWN = (
    _Known(
        r"Could not parse Master URL: '?([^'\n]*)'?",
        InvalidArgument,
        "--master: unknown kind of master: {0}",
        "for example local[4], spark://HOST:7077, yarn or k8s://…",
    ),
    _Known(
        r"\bMaster must (either [^\n]*)",
        InvalidArgument,
        "--master: must {0}",
        "for example local[4] or spark://HOST:7077",
    ),
    _Known(
        r"All masters are unresponsive|Unable to connect to the Spark master",
        SparkFailed,
        "no Spark master answers",
        "see --master; is the cluster up?",
    ),
    _Known(
        r"either HADOOP_CONF_DIR or YARN_CONF_DIR must be set",
        SparkFailed,
        "Spark on YARN needs HADOOP_CONF_DIR or YARN_CONF_DIR",
    ),
    _Known(
        r"Invalid (?:initial|maximum) heap size: -Xm[sx](\S+)",
        InvalidArgument,
        "--conf spark.driver.memory={0}: not a size",
    ),
    _Known(
        r"\[INVALID_(?:CONF_VALUE|DRIVER_MEMORY|EXECUTOR_MEMORY)[^\]]*\] ([^\n]*?)\.?(?: SQLSTATE: \w+)?$",
        InvalidArgument,
        "--conf: {0}",
    ),
    _Known(
        r"PYTHON_VERSION_MISMATCH[^\n]*?([^\n\]]*)$",
        SparkFailed,
        "driver and executors have different versions of Python",
        "set PYSPARK_PYTHON to one that is the same everywhere",
    ),
    _Known(
        r"No module named '(?:engine|rstore_cli)[.\w]*'",
        SparkFailed,
        "rstore is not installed on the executors",
        _FOR_THE_PACKAGE,
    ),
    _Known(
        r"No module named '(\w+)",
        SparkFailed,
        "the executors' Python has no {0}",
        "install rstore[spark] there, or name another Python in PYSPARK_PYTHON",
    ),
    _Known(r"Cannot run program \"([^\"]+)\"", SparkFailed, "the executors have no {0}", "set PYSPARK_PYTHON"),
    _Known(
        r"No space left on device",
        SparkFailed,
        "no space left on device where Spark keeps its scratch files",
        "free space, or use another directory: --conf spark.local.dir=DIR",
    ),
    _Known(r"java\.lang\.OutOfMemoryError", SparkFailed, "Spark ran out of memory", _MORE_MEMORY),
    _Known(r"MemoryError", SparkFailed, "a Python worker ran out of memory", _MORE_MEMORY),
    _Known(
        r"Python worker exited unexpectedly|Python worker process terminated|PYTHON_WORKER_EXITED",
        SparkFailed,
        "a Python worker was killed (out of memory?)",
        _MORE_MEMORY,
    ),
    _Known(
        r"ExecutorLostFailure|SlaveLost|[Ll]ost executor|Lost task .*Exit(?:ed|code)",
        SparkFailed,
        "the job failed: executors were lost",
        _MORE_MEMORY,
    ),
    _Known(r"spark\.driver\.maxResultSize", SparkFailed, "the answer is larger than the driver accepts", _MORE_MEMORY),
    _Known(
        r"Job \d* ?cancelled|SparkContext was shut down|cancelled because SparkContext|stopped SparkContext",
        SparkFailed,
        "Spark was stopped while the job ran",
    ),
    _Known(
        r"Answer from Java side is empty|Error while sending or receiving|Connection refused|"
        r"An error occurred while trying to connect to the Java server",
        SparkFailed,
        "Spark's JVM ended (killed, or out of memory?)",
        "more memory: --conf spark.driver.memory=4g",
    ),
    _Known(
        r"(?:IllegalArgumentException|NumberFormatException|SparkException): "
        r"((?!Job aborted)[^\n]*(?<![\w.])spark\.[\w.]+[^\n]*)",
        InvalidArgument,
        "--conf: {0}",
    ),
)


def _known(text: str) -> RStoreError | None:
    for known in _KNOWN:
        match = re.search(known.words, text, re.MULTILINE)
        if match is not None:
            word = next((group for group in match.groups() if group), "")
            return known.kind(known.message.format(" ".join(word.split())), hint=known.hint)
    return None


def _unknown(error: BaseException, message: str) -> RStoreError:
    """What a worker's traceback ends with, else the cause of all causes, else the first line."""
    inner = [f"{name}: {text}" for name, text in _LAST_OF_TRACE.findall(message) if not name.startswith(_JAVA)]
    causes = _CAUSE.findall(message)
    first = next((line.strip() for line in message.splitlines() if line.strip()), type(error).__name__)
    reason = " ".join((inner[0] if inner else causes[-1] if causes else first).split())
    return SparkFailed(f"{UNKNOWN}{_SQLSTATE.sub('', reason)[:_SHOWN]}", hint="RSTORE_DEBUG=1 shows Spark's full error")
