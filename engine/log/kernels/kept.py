"""Kernels whose machine code is kept in files of our own, so that a process runs them without importing numba.

numba needs a quarter of a second to be imported, and as much to load a command's kernels from its own cache. What it
has compiled for a kernel is one function without Python in it: `engine.log.kernels.linked` takes it out, this module
keeps it, maps it in the next process and calls it, without Python's lock, as numba's own wrapper does.

Theory, numba's calling convention (numba.core.callconv.CPUCallConv): the function gets a pointer for its result, one
for an error, and its arguments laid flat: a number is one word; an array is meminfo (none: numba counts no references
then), parent, items, bytes an item, address, shape, strides; a named tuple is its fields. It gives 0, or it failed.
`engine.log.kernels.compiling` compares that with what numba says before anything is kept.

A file counts only with everything that its code depends on (`_identity`): kernels' sources, versions, the processor.
Whatever is in doubt is None here, and numba runs the kernel: no file, a torn one, another one's, one that others can
write (`engine.files.machine_code`), another processor, NUMBA_ variables, a system that forbids it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from engine.files.cache import cache_directory
from engine.files.machine_code import MappedCode, builtin, read_own, write_own

Kinds: TypeAlias = tuple[Any, ...]
"""What kinds of arguments a kernel's code was compiled for: WHOLE, TRUTH, an array's (dtype, dimensions, whether it can
be written), or (name, kinds) of a named tuple."""

_Made = TypeVar("_Made")
WHOLE, TRUTH = "int64", "bool"
OUTER = frozenset({"malloc", "free", "memcpy", "memmove", "memset"})
"""Functions of the C library that a kernel may call."""
NATIVE: Kinds = ("native",)
"""In place of the kinds of a kernel's arguments: it is a native (`engine.log.kernels.native`)."""
NATIVE_MAY_CALL = OUTER | {
    "PyBuffer_Release",
    "PyBytes_AsString",
    "PyBytes_FromStringAndSize",
    "PyBytes_Size",
    "PyDict_GetItemWithError",
    "PyDict_New",
    "PyDict_Next",
    "PyDict_SetItem",
    "PyErr_Clear",
    "PyErr_Occurred",
    "PyList_Append",
    "PyList_New",
    "PyLong_AsLongLong",
    "PyLong_FromLongLong",
    "PyObject_GetAttr",
    "PyObject_GetBuffer",
    "PyObject_GetItem",
    "PyObject_SetAttr",
    "PyObject_Type",
    "PySlice_New",
    "PyTuple_GetItem",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyTuple_Size",
    "PyType_GenericAlloc",
    "PyUnicode_AsUTF8AndSize",
    "PyUnicode_DecodeUTF8",
    "Py_DecRef",
    "Py_IncRef",
}
"""With them, functions of Python's C API: what a native may call."""
_TUPLE_SIZE = 24
FAILED = object()
"""The kernel did not come to its end."""
RESULTS = "?iIqQ"
"""What results are made of: bool, int32, uint32, int64, uint64 (as `struct` names them)."""
_MAGIC = b"rstore kernel 1\n"
_HASH_SIZE = 32
_HEAD = struct.Struct("<I")
_ARRAY_WORDS = 5
_CPU_SIZE = 16 << 10
_CPU_LINES = ("vendor_id", "cpu family", "model", "stepping", "flags")
_HERE = Path(__file__).parent
_SHARED = (_HERE.parents[1] / "format", _HERE)
"""Directories of what kernels are made of, beside their own file: layouts, kernels that they call, loads and stores."""
_USED_S = 86400
"""The directory's time says, to a day, when it was used last."""


class LinkedCode(NamedTuple):
    """A kernel's code in one image: where it begins there, and the places that get addresses, as
    `engine.files.machine_code.MappedCode` has them.
    """

    image: bytes
    entry: int
    inner: tuple[tuple[int, int], ...]
    outer: tuple[tuple[int, str], ...]


class LastTuple:
    """The named tuple that a kernel was given last, and what it is flat: most calls are given it again.

    It is held until another one comes, with its arrays, which may be written to meanwhile but not resized: that is for
    its class to say (`lasts`).
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: tuple[object, tuple[Kinds, list[int]] | None] = (None, None)

    def flattened(self, value: tuple[Any, ...]) -> tuple[Kinds, list[int]] | None:
        """As the function, of the items of a tuple."""
        known, flat = self._known
        if known is not value:
            flat = flattened(tuple(value))
            self._known = (value, flat)
        return flat


def flattened(arguments: tuple[Any, ...], last: LastTuple | None = None) -> tuple[Kinds, list[int]] | None:
    """The kinds of a kernel's arguments, and their words; None for arguments that only numba takes."""
    kinds: list[Any] = []
    words: list[int] = []
    for value in arguments:
        kind = type(value)
        if kind is int:
            if not -(1 << 63) <= value < 1 << 63:
                return None
            kinds.append(WHOLE)
            words.append(value)
        elif kind is np.ndarray:
            flags = value.flags
            if not (flags.c_contiguous and flags.aligned) or not value.dtype.isnative:
                return None
            kinds.append((value.dtype.str, value.ndim, flags.writeable))
            words += (0, 0, value.size, value.itemsize, value.__array_interface__["data"][0])
            words += value.shape
            words += value.strides
        elif kind is bool:
            kinds.append(TRUTH)
            words.append(int(value))
        elif kind is np.int64:
            kinds.append(WHOLE)
            words.append(int(value))
        elif isinstance(value, tuple) and hasattr(kind, "_fields"):
            known = last if getattr(value, "lasts", False) else None
            inside = flattened(tuple(value)) if known is None else known.flattened(value)
            if inside is None:
                return None
            kinds.append((f"{kind.__module__}.{kind.__qualname__}", inside[0]))
            words += inside[1]
        else:
            return None
    return tuple(kinds), words


def words_of(kinds: Kinds) -> str:
    """What `flattened` makes of arguments of these kinds: `p`, an address; `q`, a number; `?`, a truth value."""
    out = ""
    for kind in kinds:
        if kind == WHOLE:
            out += "q"
        elif kind == TRUTH:
            out += "?"
        elif len(kind) == 2:
            out += words_of(kind[1])
        else:
            out += "ppqqp" + "qq" * kind[1]
    return out


class KeptCode:
    """A kernel's code, ready to be called from any thread."""

    __slots__ = ("_call", "_mapped", "_result", "_single", "_size")

    def __init__(self, linked: LinkedCode, result: str, single: bool, words: int) -> None:
        self._mapped = MappedCode(linked.image, linked.inner, linked.outer)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * words)
        self._call = prototype(self._mapped.address + linked.entry)
        self._result = struct.Struct("@" + result)
        self._size = max(self._result.size, 8)
        self._single = single

    def run(self, words: list[int]) -> Any:
        """The kernel's result, or FAILED."""
        result = ctypes.create_string_buffer(self._size)
        if self._call(result, ctypes.byref(ctypes.c_void_p()), *words) != 0:
            return FAILED
        values = self._result.unpack_from(result)
        return (values[0] if values else None) if self._single else values


def has_some() -> bool:
    """Whether a process with all that code depends on (versions, processor, sources) has kept some here."""
    directory = _directory()
    return directory is not None and os.path.isdir(directory)


def load(function: Callable[..., Any], kinds: Kinds) -> KeptCode | None:
    """The code that is kept of a kernel for arguments of these kinds."""
    return _loaded(
        function, kinds, OUTER, lambda linked, result, single: KeptCode(linked, result, single, len(words_of(kinds)))
    )


def load_native(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The builtin whose code is kept of a native.

    None also where Python has no lock that would be held, and where tuples have more than their items (3.14: a hash,
    which natives don't know).
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or tuple.__basicsize__ != _TUPLE_SIZE:
        return None
    return _loaded(
        function,
        NATIVE,
        NATIVE_MAY_CALL,
        lambda linked, _, __: builtin(
            function.__name__, MappedCode(linked.image, linked.inner, linked.outer), linked.entry
        ),
    )


def _loaded(
    function: Callable[..., Any], kinds: Kinds, outer: Set[str], made: Callable[[LinkedCode, str, bool], _Made]
) -> _Made | None:
    """What is `made` of the code that is kept of a function; None: there is none that may be run."""
    place = _place(function, kinds)
    if place is None:
        return None
    directory, name, key = place
    data = read_own(directory, name)
    if data is None:
        return None
    try:
        code = made(*_unpacked(data, key, outer))
    except (ValueError, KeyError, TypeError, IndexError, struct.error, OSError, AttributeError):
        return None
    _used(directory)
    return code


def keep(function: Callable[..., Any], kinds: Kinds, linked: LinkedCode, result: str, single: bool) -> None:
    """Keep it, where it can be kept. `result`: letters of RESULTS; `single`: whether it is no tuple."""
    place = _place(function, kinds)
    if place is None:
        return
    directory, name, key = place
    about = {
        "key": key,
        "entry": linked.entry,
        "inner": linked.inner,
        "outer": linked.outer,
        "result": result,
        "single": single,
    }
    text = json.dumps(about).encode()
    content = _HEAD.pack(len(text)) + text + linked.image
    try:
        write_own(directory, name, _MAGIC + hashlib.sha256(content).digest() + content)
    except OSError:  # the next process asks numba again
        return


def _unpacked(data: bytes, key: str, may_call: Set[str]) -> tuple[LinkedCode, str, bool]:
    """Raises ValueError and others: not what was kept under this key."""
    start = len(_MAGIC) + _HASH_SIZE
    content = data[start:]
    if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : start] != hashlib.sha256(content).digest():
        raise ValueError("torn")
    (size,) = _HEAD.unpack_from(content)
    about = json.loads(content[_HEAD.size : _HEAD.size + size])
    image = content[_HEAD.size + size :]
    if about["key"] != key:
        raise ValueError("another kernel's")
    inner = tuple((int(place), int(target)) for place, target in about["inner"])
    outer = tuple((int(place), str(name)) for place, name in about["outer"])
    places = [about["entry"], *(place + 8 for place, _ in (*inner, *outer)), *(target for _, target in inner)]
    if not all(0 <= place <= len(image) for place in places) or not {name for _, name in outer} <= may_call:
        raise ValueError("places outside of it")
    if not set(about["result"]) <= set(RESULTS):
        raise ValueError("another result")
    return LinkedCode(image, about["entry"], inner, outer), about["result"], about["single"]


def _place(function: Callable[..., Any], kinds: Kinds) -> tuple[Path, str, str] | None:
    """Directory, file name, and the key that must be in the file."""
    identity, directory = _identity(), _directory()
    if identity is None or directory is None:
        return None
    code = function.__code__
    try:
        source = _stamp(code.co_filename)
    except OSError:
        return None
    if function.__closure__:  # what it depends on is in no file
        return None
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    key = repr((identity, source, function.__module__, function.__qualname__, code.co_firstlineno, kinds))
    return directory, f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.code", key


@functools.cache
def _directory() -> Path | None:
    """Where code is kept; None where none is used."""
    identity = _identity()
    if identity is None:
        return None
    try:
        place = cache_directory() / "kernels" / digest_of_shared()
    except (OSError, RuntimeError):  # no home
        return None
    return place / f"code-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


@functools.cache
def _identity() -> str | None:
    """What all kept code depends on; None where none is used."""
    if sys.platform != "linux" or os.uname().machine != "x86_64" or sys.implementation.name != "cpython":
        return None
    if any(name.startswith("NUMBA_") for name in os.environ) or os.path.exists(".numba_config.yaml"):
        return None  # somebody wants something of numba: it is asked
    versions = [sys.version, np.__version__, *(_version_of(package) for package in ("numba", "llvmlite"))]
    processor = _processor()
    if None in versions or processor is None:
        return None
    return repr((versions, processor))


def _version_of(package: str) -> str | None:
    """What an installed package says of its version, without an import; None: it isn't installed, or says nothing."""
    try:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            return None
        return hashlib.sha256(Path(spec.origin).with_name("_version.py").read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None


def _processor() -> str | None:
    """The first processor's name and features, as the system tells them; None where it doesn't."""
    try:
        with Path("/proc/cpuinfo").open("rb") as file:
            text = file.read(_CPU_SIZE).partition(b"\n\n")[0].decode("ascii", "replace")
    except OSError:
        return None
    lines = [line for line in text.splitlines() if line.partition("\t")[0].strip() in _CPU_LINES]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if len(lines) == len(_CPU_LINES) else None


@functools.cache
def digest_of_shared() -> str:
    """Of what all kernels are made of: constants of other files are compiled into them, which numba doesn't notice.

    Raises OSError.
    """
    digest = hashlib.sha256()
    for directory in _SHARED:
        for path in sorted(directory.iterdir()):
            if path.suffix == ".py":
                digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@functools.cache
def _stamp(file: str) -> str:
    """Of a kernel's own file. Raises OSError."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _used(directory: Path) -> None:
    """Other versions remove the directory when it has not been used for long (`compiling`), by its time."""
    try:
        if directory.parent.stat().st_mtime < time.time() - _USED_S:
            os.utime(directory.parent)
    except OSError:
        return
