"""How kernels are compiled, by numba: without the GIL, and kept on disk where a place for it can be written.

Compiled code is kept in the user's cache directory, below a name that is made of the kernels' sources: numba's own
places go by a source file's modification time, so that every reinstallation of the same version compiled anew. Where
that can't be written, or NUMBA_CACHE_DIR names another place, it is numba's choice: there, beside the module. Where
nothing can be written, each process compiles anew (some seconds, once a long log is read).

Of each kernel that Python calls, the machine code is kept beside it, for processes that have no use for numba
(`engine.log.kernels.kept`). Its calling convention is compared before with what that module knows of it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

from llvmlite import binding, ir
from numba import config, njit, types
from numba.core.caching import FunctionCache
from numba.np.numpy_support import as_dtype

from engine.dataclass import dataclass
from engine.files.cache import cache_directory
from engine.log.kernels import kept
from engine.log.kernels.jit import LOGGER, MadeLater
from engine.log.kernels.linked import NotLinked, linked

_KEPT_S = 60 * 86400
"""What other versions have compiled goes when it has not been used for so long."""
_ONE_AT_A_TIME = threading.RLock()
_ARRAY = ("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides")
_WIDTHS = {"p": 0, "?": 1, "i": 32, "I": 32, "q": 64, "Q": 64}
_LETTERS = {(32, True): "i", (32, False): "I", (64, True): "q", (64, False): "Q"}
_MEMORY = """
declare ptr @malloc(i64)
declare void @free(ptr)

define ptr @NRT_Allocate(i64 %size) {
  %place = call ptr @malloc(i64 %size)
  ret ptr %place
}

define void @NRT_Free(ptr %place) {
  call void @free(ptr %place)
  ret void
}

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %to = zext i32 %align to i64
  %margin = add i64 %to, 64
  %whole = add i64 %size, %margin
  %wraps = icmp ult i64 %whole, %size
  br i1 %wraps, label %none, label %asked
asked:
  %place = call ptr @malloc(i64 %whole)
  %got = icmp ne ptr %place, null
  br i1 %got, label %there, label %none
none:
  ret ptr null
there:
  %address = ptrtoint ptr %place to i64
  %after = add i64 %address, %margin
  %over = urem i64 %after, %to
  %at = sub i64 %after, %over
  %data = inttoptr i64 %at to ptr
  %empty = insertvalue {i64, ptr, ptr, ptr, i64, ptr} zeroinitializer, i64 1, 0
  %with = insertvalue {i64, ptr, ptr, ptr, i64, ptr} %empty, ptr %data, 3
  %all = insertvalue {i64, ptr, ptr, ptr, i64, ptr} %with, i64 %size, 4
  store {i64, ptr, ptr, ptr, i64, ptr} %all, ptr %place
  ret ptr %place
}

define void @NRT_MemInfo_call_dtor(ptr %info) {
  call void @free(ptr %info)
  ret void
}
"""
"""What kernels call for arrays of their own, in place of numba's runtime: an array's data and, before it, numba's
MemInfo with one reference and no destructor. Source: numba/core/runtime/nrt.cpp."""
_NATIVE = (types.int64,) * 3
_BUILTIN_NAME = "rstore_builtin"
_BUILTIN = f"""
declare i32 @"%s"(ptr, ptr, i64, i64, i64)

define i64 @{_BUILTIN_NAME}(i64 %%own, i64 %%args, i64 %%count) {{
  %%result = alloca i64
  %%error = alloca ptr
  store i64 0, ptr %%result
  %%state = call i32 @"%s"(ptr %%result, ptr %%error, i64 %%own, i64 %%args, i64 %%count)
  %%value = load i64, ptr %%result
  ret i64 %%value
}}
"""
"""A native as CPython calls it; numba's own function gives 0 and its result, or it has failed: then that stays 0."""


def compiled(function: FunctionType) -> Any:
    """numba's kernel of a function."""
    made = _with_made(function)
    kernel = njit(nogil=True)(made)
    try:
        kernel._cache = _Kept(made)
    except RuntimeError:  # no place to keep it
        LOGGER.debug("cannot write the cache of compiled kernels")
    return kernel


def inlined(function: FunctionType) -> Any:
    """numba's part of kernels, inlined."""
    return njit(nogil=True, inline="always")(_with_made(function))


def _with_made(function: FunctionType) -> FunctionType:
    """The function as numba is to see it: what it takes of its module is made (`engine.log.kernels.jit.MadeLater`)."""
    names = set(function.__code__.co_names)
    with _ONE_AT_A_TIME:
        values = {name: _made(value) if name in names else value for name, value in function.__globals__.items()}
        cells = tuple(CellType(_made(cell.cell_contents)) for cell in function.__closure__ or ())
    return FunctionType(function.__code__, values, function.__name__, function.__defaults__, cells or None)


def _made(value: Any) -> Any:
    return value.made() if isinstance(value, MadeLater) else value


def new_objects(kernel: Any) -> dict[Any, _Compiled]:
    """What numba has compiled of a kernel, or taken from its cache, and `keep` has not seen. Filled later, too."""
    return kernel._cache._impl.objects if isinstance(kernel._cache, _Kept) else {}


def keep(function: FunctionType, new: dict[Any, _Compiled], arguments: tuple[Any, ...]) -> None:
    """Keep a kernel's machine code for arguments of these kinds, if it can be."""
    flat = kept.flattened(arguments)
    with _ONE_AT_A_TIME:
        objects = dict(new)
        new.clear()
    for one in objects.values():
        if flat is None or _kinds_of(one.signature.args) != flat[0]:
            continue
        result = _result_of(one.signature.return_type)
        try:
            if result is None or not _is_called_so(flat[0], result, one):
                continue
            code = linked([one.code, _memory(one.context)], one.name)
        except NotLinked as why:
            LOGGER.debug("%s is not kept: %s", one.name, why)
            continue
        kept.keep(function, flat[0], code, result, not isinstance(one.signature.return_type, types.BaseTuple))


def keep_native(function: FunctionType) -> None:
    """Compile a native, and keep its machine code, if it can be."""
    kernel = compiled(function)
    kernel.compile(_NATIVE)
    for one in new_objects(kernel).values():
        try:
            if one.signature.return_type != types.int64 or not _is_called_so((kept.WHOLE,) * len(_NATIVE), "q", one):
                raise NotLinked("another signature")
            code = linked(
                [_object(one.context, _BUILTIN % (one.name, one.name)), one.code], _BUILTIN_NAME, kept.NATIVE_MAY_CALL
            )
        except NotLinked as why:
            LOGGER.debug("%s is not kept: %s", one.name, why)
            continue
        kept.keep(function, kept.NATIVE, code, "q", single=True)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A kernel as numba has compiled it for one signature: its object, the function's name there."""

    code: bytes
    name: str
    signature: Any
    context: Any


def _kinds_of(arguments: tuple[Any, ...]) -> kept.Kinds | None:
    """The kinds of arguments with these types; None: numba alone takes them."""
    kinds: list[Any] = []
    for one in arguments:
        if isinstance(one, types.Array) and one.layout == "C" and one.aligned:
            try:
                kinds.append((as_dtype(one.dtype).str, one.ndim, one.mutable))
            except NotImplementedError:
                return None
        elif isinstance(one, (types.NamedTuple, types.NamedUniTuple)):
            inside = _kinds_of(tuple(one))
            if inside is None:
                return None
            kind = one.instance_class
            kinds.append((f"{kind.__module__}.{kind.__qualname__}", inside))
        elif one == types.int64:
            kinds.append(kept.WHOLE)
        elif one == types.boolean:
            kinds.append(kept.TRUTH)
        else:
            return None
    return tuple(kinds)


def _result_of(kind: Any) -> str | None:
    """Letters of `kept.RESULTS`; None for a result of another kind."""
    if kind == types.none:
        return ""
    letters = ""
    for one in kind if isinstance(kind, types.BaseTuple) else (kind,):
        if one == types.boolean:
            letters += "?"
        elif isinstance(one, types.Integer) and (one.bitwidth, one.signed) in _LETTERS:
            letters += _LETTERS[one.bitwidth, one.signed]
        else:
            return None
    return letters


def _is_called_so(kinds: kept.Kinds, result: str, one: _Compiled) -> bool:
    """Whether numba calls the function as `engine.log.kernels.kept` does."""
    models = one.context.data_model_manager
    if any(isinstance(kind, types.Array) and models[kind]._fields != _ARRAY for kind in one.signature.args):
        return False
    call = one.context.call_conv.get_function_type(one.signature.return_type, one.signature.args)
    if call.return_type != ir.IntType(32) or len(call.args) < 2:
        return False
    back = call.args[0].pointee
    inside = list(back.elements) if isinstance(back, ir.LiteralStructType) else [back]
    if isinstance(back, ir.ArrayType):
        inside = [back.element] * back.count
    words = kept.words_of(kinds)
    return (
        (not result or [_width(kind) for kind in inside] == [_WIDTHS[letter] for letter in result])
        and isinstance(call.args[1], ir.PointerType)
        and [_width(kind) for kind in call.args[2:]] == [_WIDTHS[letter] for letter in words]
    )


def _width(kind: Any) -> int:
    """Bits of a number, 1 of a truth value, 0 of an address, −1 of anything else."""
    if isinstance(kind, ir.PointerType):
        return 0
    if isinstance(kind, ir.IntType):
        return 1 if kind.width == 8 else kind.width
    return -1


@functools.cache
def _memory(context: Any) -> bytes:
    """The object of `_MEMORY`. Raises NotLinked."""
    return _object(context, _MEMORY)


def _object(context: Any, assembly: str) -> bytes:
    """Raises NotLinked."""
    try:
        module = binding.parse_assembly(assembly)
        module.verify()
        return bytes(context.codegen()._tm.emit_object(module))
    except RuntimeError as error:
        raise NotLinked(str(error)) from None


class _Place:
    """Where one kernel is kept, as numba asks for it (numba.core.caching: a cache locator)."""

    def __init__(self, function: Callable[..., object], file: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._stamp = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        self._directory = cache_directory() / "kernels" / kept.digest_of_shared()

    def ensure_cache_path(self) -> None:
        """Make the directory. Raises OSError: it can't be written."""
        if not self._directory.is_dir():
            self._directory.mkdir(parents=True, exist_ok=True)  # another process may just make it
            _forget_others(self._directory)
        tempfile.TemporaryFile(dir=self._directory).close()

    def get_cache_path(self) -> str:
        """The directory."""
        return str(self._directory)

    def get_source_stamp(self) -> str:
        """What is kept under another one is compiled anew."""
        return self._stamp

    def get_disambiguator(self) -> str:
        """Tells kernels of the same name apart."""
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., object], file: str) -> _Place | None:
        """The place of a kernel; None: numba looks for one."""
        if config.CACHE_DIR:
            return None
        try:
            place = cls(function, file)
            place.ensure_cache_path()
        except (OSError, RuntimeError):
            return None
        return place


class _NotedImpl(FunctionCache._impl_class):  # type: ignore[misc]
    """numba's way to and from its cache, which notes the object code that passes."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self.objects: dict[Any, _Compiled] = {}

    def reduce(self, compiled: Any) -> Any:
        """What is to be cached."""
        payload = super().reduce(compiled)
        self._note(payload, compiled)
        return payload

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """What was cached."""
        compiled = super().rebuild(target_context, payload)
        self._note(payload, compiled)
        return compiled

    def _note(self, payload: Any, compiled: Any) -> None:
        with contextlib.suppress(AttributeError, TypeError, ValueError, IndexError):  # another numba: nothing is kept
            _, kind, data = payload[0]
            if kind == "object":
                signature = compiled.signature
                self.objects[signature.args] = _Compiled(
                    bytes(data[0]), compiled.fndesc.llvm_func_name, signature, compiled.target_context
                )


class _Kept(FunctionCache):  # type: ignore[misc]
    """numba's cache of a kernel, at our place first, which says when there is nothing in it."""

    _impl_class = type(
        "_KeptImpl",
        (_NotedImpl,),
        {"_locator_classes": [_Place, *FunctionCache._impl_class._locator_classes]},
    )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        overload = super().load_overload(sig, target_context)
        if overload is None:
            LOGGER.info("compiling %s", self._impl.filename_base)
        return overload


def _forget_others(directory: Path) -> None:
    for other in directory.parent.iterdir():
        with contextlib.suppress(OSError):  # another process may just remove it
            if other != directory and other.stat().st_mtime < time.time() - _KEPT_S:
                shutil.rmtree(other, ignore_errors=True)
