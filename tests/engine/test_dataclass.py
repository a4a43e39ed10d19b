"""Dataclasses whose methods come when they are called: in all that can be asked of them those of the standard."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import sys
import threading
from dataclasses import FrozenInstanceError, field
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest

from engine import dataclass as ours


class Place:
    """Where."""

    offset: int
    length: int = 7
    names: list[str] = field(default_factory=list)
    _hidden: int = field(default=3, init=False, repr=False)

    @property
    def end(self) -> int:
        """After it."""
        return self.offset + self.length


class Named:
    """With what runs after it was made."""

    name: str
    size: int = 0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(self.size)

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Same:  # noqa: PLW1641 - what becomes of its __hash__ is asked
    """With an equality of its own."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same)


class Counting:
    """With a class variable."""

    count: ClassVar[int] = 0
    size: int = 1


KINDS = [
    (plain, parameters)
    for plain in (Place, Named, Same, Counting)
    for parameters in (
        {"frozen": True, "slots": True},
        {"slots": True},
        {"frozen": True, "slots": True, "eq": False},
        {"frozen": True},
        {},
    )
]


def both(plain: type, parameters: dict[str, bool]) -> tuple[Any, Any]:
    """The class by our decorator, and by the standard's."""
    return tuple(
        decorator(**parameters)(type(plain.__name__, (), {**content_of(plain), "__qualname__": plain.__qualname__}))
        for decorator in (ours.dataclass, dataclasses.dataclass)
    )


def content_of(plain: type) -> dict[str, Any]:
    content = {key: value for key, value in vars(plain).items() if key not in ("__dict__", "__weakref__")}
    return {key: copy.copy(value) if isinstance(value, dataclasses.Field) else value for key, value in content.items()}


@pytest.mark.parametrize(("plain", "parameters"), KINDS)
@pytest.mark.parametrize(
    "ask",
    [
        lambda cls, one: repr(one),
        lambda cls, one: one == one,
        lambda cls, one: one == copy.deepcopy(one),
        lambda cls, one: cls.__hash__ is None,
        lambda cls, one: inspect.signature(cls),
        lambda cls, one: cls.__match_args__,
        lambda cls, one: [
            (f.name, f.type, f.init, f.repr, f.default is dataclasses.MISSING) for f in dataclasses.fields(cls)
        ],
        lambda cls, one: dataclasses.asdict(one),
        lambda cls, one: repr(dataclasses.replace(one)),
        lambda cls, one: repr(cls.__dataclass_params__).replace("slots=True", "slots=False"),
        lambda cls, one: dataclasses.is_dataclass(cls),
        lambda cls, one: getattr(cls, "__slots__", None),
        lambda cls, one: hasattr(one, "__dict__"),
        lambda cls, one: (cls.__name__, cls.__qualname__, cls.__module__, cls.__doc__),
    ],
)
@pytest.mark.parametrize("first", [False, True], ids=["asked first", "made first"])
def test_answers_are_those_of_the_standard(plain: type, parameters: dict[str, bool], ask: Any, first: bool) -> None:
    answers = []
    for cls in both(plain, parameters):
        arguments = [] if plain is Counting else ["a"] if plain is not Place else [5]
        if first:
            cls(*arguments)
        else:
            dataclasses.is_dataclass(cls) if plain is Counting else None
        answers.append(ask(cls, cls(*arguments)))
    assert answers[0] == answers[1]


def test_the_first_call_makes_methods_and_they_are_the_standards() -> None:
    cls, standard = both(Place, {"frozen": True, "slots": True})
    names = ("__init__", "__repr__", "__eq__", "__hash__")
    stand_ins = {name: vars(cls)[name] for name in names}
    one = cls(5)
    assert one.end == 12
    assert [name for name in names if vars(cls)[name] is not stand_ins[name]] == ["__init__"]
    own = cls.__init__
    assert repr(one) == repr(standard(5))
    assert all(vars(cls)[name] is not stand_ins[name] for name in names)
    assert cls.__init__ is own
    assert own.__code__.co_code == standard.__init__.__code__.co_code
    assert stand_ins["__init__"](one, 6) is None  # who holds it still
    assert one.offset == 6
    assert cls(1) == cls(1) != cls(2)
    assert hash(both(Named, {"frozen": True, "slots": True})[0]("a")) == hash(("a", 0))


def test_arguments_that_do_not_fit() -> None:
    cls, standard = both(Named, {"frozen": True, "slots": True})
    for wrong in ((), ("a", 1, 2)):
        messages = []
        for one in (cls, standard):
            with pytest.raises(TypeError) as raised:
                one(*wrong)
            messages.append(str(raised.value))
        assert messages[0] == messages[1]
    with pytest.raises(ValueError, match="-1"):
        cls("a", -1)


@pytest.mark.parametrize("made", [False, True])
def test_frozen_is_frozen(made: bool) -> None:
    cls, _ = both(Place, {"frozen": True, "slots": True})
    one = cls(5) if made else object.__new__(cls)
    for change in (lambda: setattr(one, "offset", 6), lambda: setattr(one, "other", 6), lambda: delattr(one, "offset")):
        with pytest.raises((FrozenInstanceError, TypeError)):
            change()
    changing, _ = both(Place, {"slots": True})
    two = changing(5)
    two.offset = 6
    assert two.end == 13
    with pytest.raises(AttributeError):
        two.other = 6


@ours.dataclass(frozen=True, slots=True)
class Below:
    """One that others are made of."""

    offset: int
    size: int = 1


@ours.dataclass(frozen=True, slots=True)
class Above(Below):
    """One more field, and another default."""

    size: int = 2
    name: str = ""


def test_with_a_base() -> None:
    one = Above(5, name="n")
    assert repr(one) == "Above(offset=5, size=2, name='n')"
    assert [f.name for f in dataclasses.fields(Above)] == ["offset", "size", "name"]
    assert repr(Below(5)) == "Below(offset=5, size=1)"
    assert Above.__slots__ == ("name",)
    assert one != Below(5, 2)


@pytest.mark.parametrize("one", [Above(5, name="n"), Below(3)])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_goes_to_another_process(one: Below, protocol: int) -> None:
    if protocol < 2:
        with pytest.raises(TypeError):  # as any class with slots
            pickle.dumps(object.__new__(type("Slotted", (), {"__slots__": ("a",)})), protocol)
        return
    again = pickle.loads(pickle.dumps(one, protocol))
    assert again == one
    assert type(again) is type(one)


def test_many_threads_make_the_first() -> None:
    for _ in range(50):
        cls, _ = both(Place, {"frozen": True, "slots": True})
        together = threading.Barrier(8)
        made: list[Any] = []

        def make(cls: Any = cls, together: threading.Barrier = together, made: list[Any] = made) -> None:
            together.wait()
            made.append(cls(5))

        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [cls(5)] * 8


def test_all_classes_of_the_project_are_made_so() -> None:
    root = Path(__file__).resolve().parents[2]
    places = [path for part in ("engine", "rstore_cli") for path in (root / part).rglob("*.py")]
    asked = re.compile(r"^\s*from dataclasses import .*\bdataclass\b|dataclasses\.dataclass\b(?!`)", re.MULTILINE)
    found = [path.relative_to(root).as_posix() for path in places if asked.search(path.read_text())]
    assert found == ["engine/dataclass.py"]


def test_an_exception_in_the_middle_of_making_it_harms_nothing() -> None:
    """A signal's, say: 438 of 1,096 places left a class that could never be made."""
    events = 0
    left = -1

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal events, left
        events += 1
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return trace

    def traced(cls: Any) -> None:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            cls(5)
        finally:
            sys.settrace(before)

    traced(both(Place, {"frozen": True, "slots": True})[0])
    interrupted = 0
    for at in range(1, events, 3):
        cls, standard = both(Place, {"frozen": True, "slots": True})
        left = at
        try:
            traced(cls)
        except (KeyboardInterrupt, RuntimeError):  # Python makes the second of the first where it comes in __set_name__
            interrupted += 1
        left = -1
        assert repr(cls(5)) == repr(standard(5))
        assert dataclasses.replace(cls(5), length=1).end == 6
    assert interrupted > 100
