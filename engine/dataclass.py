"""`dataclass` of the standard library, whose methods are compiled when they are first called.

Theory. The standard decorator writes the source of each method of each class and compiles it: 0.3 ms a class, 40 of
the 240 ms that `rstore recover` takes to start, for 159 classes of which most are never made. Here a class with slots
gets them at once, and stand-ins for its methods: the first object has the standard decorator make `__init__`, which is
all that most classes are ever asked for; the first call of another method (or the first look at what `fields`,
`replace`, `match` and `inspect.signature` ask a class for) all of them. They are put into the class. So they are the
standard's own, and no slower.

What is not plain goes to the standard decorator at once: other parameters than `frozen`, `slots` and `eq`, bases that
were not made here, a metaclass, class variables.
"""

from __future__ import annotations

from _thread import RLock
from copy import copy
from dataclasses import Field, FrozenInstanceError
from dataclasses import dataclass as standard
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **parameters: bool) -> Any:
        """As `dataclasses.dataclass`."""

        def decorated(cls: type) -> type:
            if parameters.keys() <= _PARAMETERS and parameters.get("slots") and _is_plain(cls):
                return _slotted(cls, parameters)
            return standard(**parameters)(cls)

        return decorated if cls is None else decorated(cls)


_PARAMETERS = frozenset({"frozen", "slots", "eq"})
_ASKED = ("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__replace__", "__signature__")
"""What a class is asked for by those who take dataclasses apart."""
_DOC = "of a class that nobody sees: for one without, the standard decorator makes a signature's text"
_SPECIAL = ("ClassVar", "InitVar", "KW_ONLY")
_OWN = frozenset({"__slots__", "__setattr__", "__delattr__", "__getstate__", "__setstate__"})
_NAMES = "__rstore_fields__"
"""In a class that was made here: the names of its fields, those of its bases first."""


def _is_plain(cls: type) -> bool:
    annotations = vars(cls).get("__annotations__")
    return (
        type(cls) is type
        and annotations is not None
        and all(isinstance(text, str) and not any(word in text for word in _SPECIAL) for text in annotations.values())
        and all(base is object or _NAMES in base.__dict__ for base in cls.__mro__[1:])
        and not cls.__dict__.keys() & _OWN
    )


def _slotted(plain: type, parameters: dict[str, bool]) -> type:
    """The class with slots. The plain one is what the standard decorator gets, later: it has the defaults."""
    pending = _Pending(plain, parameters)
    annotations = vars(plain)["__annotations__"]
    inherited = dict.fromkeys(name for base in plain.__mro__[:0:-1] for name in base.__dict__.get(_NAMES, ()))
    content = {key: value for key, value in _content(plain).items() if key not in annotations}
    content["__slots__"] = tuple(name for name in annotations if name not in inherited)
    content[_NAMES] = (*inherited, *content["__slots__"])
    methods = ["__init__", "__repr__"]
    if parameters.get("eq", True):
        methods.append("__eq__")
        if content.get("__hash__") is None:  # as Python has it in a class with an __eq__ of its own
            content["__hash__"] = pending.stand_in("__hash__") if parameters.get("frozen") else None
    for name in methods:
        if name not in content:
            content[name] = pending.stand_in(name)
    for name in _ASKED:
        content[name] = _Asked(name, pending)
    if parameters.get("frozen"):
        content.update(
            __setattr__=_refuse_to_set, __delattr__=_refuse_to_delete, __getstate__=_state, __setstate__=_set_state
        )
    pending.cls = type(plain.__name__, plain.__bases__, content)
    return pending.cls


def _content(plain: type) -> dict[str, Any]:
    """What a class is made of."""
    made_by_python = ("__dict__", "__weakref__")
    content = {key: value for key, value in vars(plain).items() if key not in made_by_python}
    return {**content, "__qualname__": plain.__qualname__}


class _Pending:
    """What a class still lacks. Thread-safe.

    Attributes:
        cls: the class with slots.
    """

    cls: type

    def __init__(self, plain: type, parameters: dict[str, bool]) -> None:
        self._plain, self._parameters = plain, parameters
        self._stand_ins: dict[str, object] = {}
        self._made = self._init_made = False
        self._one_at_a_time = RLock()

    def make(self) -> None:
        """Have the methods, and all else that a dataclass has. Begun again where a signal's exception ended it."""
        with self._one_at_a_time:
            if self._made:
                return
            made = vars(standard(**self._parameters)(self._copy()))  # another class, whose methods fit ours
            for name in _ASKED:
                if name in made:
                    setattr(self.cls, name, made[name])
                elif name in vars(self.cls):
                    delattr(self.cls, name)
            for name in self._stand_ins:
                setattr(self.cls, name, made[name])
            self._made = True

    def make_init(self) -> None:
        """Have `__init__` alone: most classes are never asked for more, and it takes half the time of all."""
        with self._one_at_a_time:
            if not (self._init_made or self._made):
                made = vars(standard(**{**self._parameters, "eq": False}, repr=False)(self._copy()))
                setattr(self.cls, "__init__", made["__init__"])  # noqa: B010 - mypy takes no assignment to it
                self._stand_ins.pop("__init__", None)
                self._init_made = True

    def _copy(self) -> type:
        """The plain class once more: the standard decorator changes what it gets."""
        plain = self._plain
        content = {key: copy(value) if isinstance(value, Field) else value for key, value in _content(plain).items()}
        content["__doc__"] = _DOC
        return type(plain.__name__, plain.__bases__, content)

    def stand_in(self, name: str) -> Callable[..., Any]:
        """A method that makes all, and then calls the one that has its name now."""

        make = self.make_init if name == "__init__" else self.make

        def first(one: Any, /, *args: Any, **named: Any) -> Any:
            make()
            return getattr(self.cls, name)(one, *args, **named)

        self._stand_ins[name] = first
        return first


class _Asked:
    """Stands for an attribute of the class, and makes all when it is asked for."""

    def __init__(self, name: str, pending: _Pending) -> None:
        self._name, self._pending = name, pending

    def __get__(self, one: object, owner: type) -> Any:
        self._pending.make()
        return getattr(owner if one is None else one, self._name)


def _refuse_to_set(one: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(one: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(one: Any) -> list[Any]:
    return [getattr(one, name) for name in getattr(type(one), _NAMES)]


def _set_state(one: Any, state: list[Any]) -> None:
    for name, value in zip(getattr(type(one), _NAMES), state, strict=True):
        object.__setattr__(one, name, value)
