"""What natives use of CPython, by name; `engine.log.kernels.python_objects` makes it when one is compiled.

An object is its address, 0 none with an exception set. Of what a function gives, the native owns a reference: it gives
it away, or `decrease`s it. But `dictionary_item` and `tuple_item` lend, and `set_tuple_item` takes one. `increase` and
`decrease` do nothing with 0.

What makes a tuple, an instance, a list, a dict or an exception may collect garbage in Python 3.11, and so run any
Python code, and other threads. So do lookups of objects whose classes compare in Python, and numbers that are none.
What was lent, and what was read of a dict or a list, does not outlive any of these.

Source: Python/C API Reference Manual; all of these are functions of the stable ABI, Py_buffer has its layout there.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from engine.log.kernels.jit import later
from engine.log.kernels.kept import NATIVE_MAY_CALL

BUFFER_WORDS: Final = 16
"""Words of 8 bytes that a Py_buffer has, and some more."""
BUFFER_LENGTH: Final = 16
"""Where a Py_buffer says how many bytes there are; their address is its first word."""


def _made(name: str, *arguments: Any, **options: Any) -> Any:
    module = importlib.import_module("engine.log.kernels.python_objects")
    made = getattr(module, name)
    return made(*arguments, **options) if arguments else made


def _function(name: str, words: int, result: str = "int64") -> Any:
    assert name in NATIVE_MAY_CALL
    return later(lambda: _made("function", name, words, result))


increase: Any = _function("Py_IncRef", 1, "void")
decrease: Any = _function("Py_DecRef", 1, "void")
forget_error: Any = _function("PyErr_Clear", 0, "void")
an_error: Any = _function("PyErr_Occurred", 0)
kind_of: Any = _function("PyObject_Type", 1)
get_buffer: Any = _function("PyObject_GetBuffer", 3, "int32")
release_buffer: Any = _function("PyBuffer_Release", 1, "void")
make_bytes: Any = _function("PyBytes_FromStringAndSize", 2)
bytes_size: Any = _function("PyBytes_Size", 1)
bytes_place: Any = _function("PyBytes_AsString", 1)
make_text: Any = _function("PyUnicode_DecodeUTF8", 3)
text_place: Any = _function("PyUnicode_AsUTF8AndSize", 2)
make_number: Any = _function("PyLong_FromLongLong", 1)
number_of: Any = _function("PyLong_AsLongLong", 1)
make_dictionary: Any = _function("PyDict_New", 0)
dictionary_item: Any = _function("PyDict_GetItemWithError", 2)
dictionary_next: Any = _function("PyDict_Next", 4, "int32")
set_dictionary_item: Any = _function("PyDict_SetItem", 3, "int32")
make_tuple: Any = _function("PyTuple_New", 1)
make_instance: Any = _function("PyType_GenericAlloc", 2)
tuple_size: Any = _function("PyTuple_Size", 1)
tuple_item: Any = _function("PyTuple_GetItem", 2)
set_tuple_item: Any = _function("PyTuple_SetItem", 3, "int32")
make_list: Any = _function("PyList_New", 1)
add_to_list: Any = _function("PyList_Append", 2, "int32")
make_slice: Any = _function("PySlice_New", 3)
item_of: Any = _function("PyObject_GetItem", 2)
attribute: Any = _function("PyObject_GetAttr", 2)
set_attribute: Any = _function("PyObject_SetAttr", 3, "int32")

word_at: Any = later(lambda: _made("load", 64))
byte_at: Any = later(lambda: _made("load", 8))
short_at: Any = later(lambda: _made("load", 16, signed=True, swapped=True))
int_at: Any = later(lambda: _made("load", 32, signed=True, swapped=True))
unsigned_at: Any = later(lambda: _made("load", 32, swapped=True))
long_at: Any = later(lambda: _made("load", 64, swapped=True))
put_byte: Any = later(lambda: _made("store", 8))
put_short: Any = later(lambda: _made("store", 16))
put_int: Any = later(lambda: _made("store", 32))
put_long: Any = later(lambda: _made("store", 64))
put_word: Any = later(lambda: _made("store", 64, swapped=False))
move: Any = later(lambda: _made("move"))
memory: Any = later(lambda: _made("memory"))


def room(words: int) -> Any:
    """`engine.log.kernels.python_objects.room`."""
    return later(lambda: _made("room", words))
