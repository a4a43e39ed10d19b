"""SQL92 expressions over a message's properties, as consumers give them (rocketmq-filter's SelectorParser).

    or    := and ("OR" and)*
    and   := not ("AND" not)*
    not   := "NOT" not | test
    test  := "(" or ")" | value [compare value | [NOT] BETWEEN value AND value | [NOT] IN ('text', …) | IS [NOT] NULL]
    value := NAME | 'text' | number | TRUE | FALSE

Three-valued: what compares with a property that is not there, or with one that is no number, is unknown, and unknown is
not true. A property is text; beside a number it is the number that it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from engine.errors import InvalidArgument
from engine.format.message import decode

if TYPE_CHECKING:
    from engine.format.queue_ext import ExtUnit

Value: TypeAlias = "str | int | float | bool | None"
Expression: TypeAlias = "Callable[[Mapping[str, str]], Value]"

MOST = 8192
"""Characters of an expression, and how deep it may nest is bounded by `DEEPEST`."""
DEEPEST = 100
_RECORD = 16
"""Terms that take as long as reading the properties of a record."""
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?L?)|'(?P<text>(?:[^']|'')*)'|(?P<name>[A-Za-z_$][\w$]*)"
    r"|(?P<sign><>|>=|<=|[=<>(),+-]))"
)
_COMPARE: Mapping[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "<>": lambda order: order != 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}
_WORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"})


class BadExpression(InvalidArgument):
    """An invalid expression; `offset` is the character."""


class SqlFilter:
    """Messages whose properties make an expression true (engine.log.filters.MessageFilter).

    Attributes:
        terms: words and signs of the expression, and as many as reading a record's properties takes.

    Raises:
        BadExpression.
    """

    def __init__(self, expression: str) -> None:
        self._matches, size = _compiled(expression)
        self.terms = _RECORD + size

    def matches_queue(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
        """A unit says nothing of properties."""
        del tags_code, ext
        return True

    def matches_log(self, record: memoryview) -> bool:
        """Whether the expression is true of the record's properties."""
        return self._matches(decode(record).properties) is True


def compile_expression(text: str) -> Expression:
    """What an expression says of properties: True, False, or None for unknown. Raises BadExpression."""
    return _compiled(text)[0]


def _compiled(text: str) -> tuple[Expression, int]:
    """The same, and how many tokens it has. Raises BadExpression."""
    if len(text) > MOST:
        raise BadExpression(f"expression has {len(text)} characters, at most {MOST} are allowed")
    parser = _Parser(text)
    expression = parser.any_of()
    parser.end()
    return (lambda properties: _truth(expression(properties))), len(parser)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str, int]] = []
        self._at = 0
        self._depth = 0
        place = 0
        end = len(text.rstrip())
        while place < end:
            match = _TOKEN.match(text, place)
            if match is None:
                odd = text[place:end].lstrip()
                raise BadExpression(f"unexpected text {odd[:20]!r}", offset=end - len(odd))
            kind = match.lastgroup or ""
            word, start = match[kind], match.start() + len(match[0]) - len(match[0].lstrip())
            if kind == "name" and word.upper() in _WORDS:
                kind, word = "word", word.upper()
            self._tokens.append((kind, word, start))
            place = match.end()
        self._length = end

    def __len__(self) -> int:
        return len(self._tokens)

    def end(self) -> None:
        """Nothing may follow."""
        if self._at < len(self._tokens):
            self._wrong("the end")

    def any_of(self) -> Expression:
        """or"""
        self._depth += 1
        if self._depth > DEEPEST:
            raise BadExpression(f"nested more than {DEEPEST} deep", offset=self._place())
        parts = [self._all_of()]
        while self._take("word", "OR"):
            parts.append(self._all_of())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else _any(parts)

    def _all_of(self) -> Expression:
        parts = [self._not()]
        while self._take("word", "AND"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else _all(parts)

    def _not(self) -> Expression:
        negated = False
        while self._take("word", "NOT"):
            negated = not negated
        expression = self._test()
        return _negated(expression) if negated else expression

    def _test(self) -> Expression:
        if self._take("sign", "("):
            expression = self.any_of()
            self._demand("sign", ")")
            return expression
        left = self._value()
        for sign, holds in _COMPARE.items():
            if self._take("sign", sign):
                return _compared(left, self._value(), holds)
        if self._take("word", "IS"):
            negated = self._take("word", "NOT")
            self._demand("word", "NULL")
            return _is_null(left, negated=negated)
        negated = self._take("word", "NOT")
        if self._take("word", "BETWEEN"):
            low = self._value()
            self._demand("word", "AND")
            expression = _all([_compared(left, low, _COMPARE[">="]), _compared(left, self._value(), _COMPARE["<="])])
            return _negated(expression) if negated else expression
        if self._take("word", "IN"):
            expression = _in(left, self._texts())
            return _negated(expression) if negated else expression
        if negated:
            self._wrong("BETWEEN or IN")
        return left

    def _texts(self) -> frozenset[str]:
        self._demand("sign", "(")
        texts = {self._text()}
        while self._take("sign", ","):
            texts.add(self._text())
        self._demand("sign", ")")
        return frozenset(texts)

    def _text(self) -> str:
        kind, word, _ = self._peek()
        if kind != "text":
            self._wrong("a string in ''")
        self._at += 1
        return word.replace("''", "'")

    def _value(self) -> Expression:
        negative = self._take("sign", "-")
        if not negative:
            self._take("sign", "+")
        kind, word, _ = self._peek()
        if kind == "number":
            self._at += 1
            number = _number(word.removesuffix("L"))
            assert number is not None
            return _constant(-number if negative else number)
        if negative:
            self._wrong("a number")
        if kind == "text":
            return _constant(self._text())
        if kind == "name":
            self._at += 1
            return lambda properties: properties.get(word)
        if kind == "word" and word in ("TRUE", "FALSE"):
            self._at += 1
            return _constant(word == "TRUE")
        return self._wrong("a property, a string or a number")

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "", self._length)

    def _place(self) -> int:
        return self._peek()[2]

    def _take(self, kind: str, word: str) -> bool:
        if self._peek()[:2] != (kind, word):
            return False
        self._at += 1
        return True

    def _demand(self, kind: str, word: str) -> None:
        if not self._take(kind, word):
            self._wrong(word)

    def _wrong(self, wanted: str) -> Expression:
        _, word, place = self._peek()
        raise BadExpression(f"expected {wanted}, not {word!r}" if word else f"expected {wanted}", offset=place)


def _constant(value: Value) -> Expression:
    return lambda _: value


def _any(parts: list[Expression]) -> Expression:
    def evaluate(properties: Mapping[str, str]) -> Value:
        unknown = False
        for part in parts:
            truth = _truth(part(properties))
            if truth:
                return True
            unknown |= truth is None
        return None if unknown else False

    return evaluate


def _all(parts: list[Expression]) -> Expression:
    def evaluate(properties: Mapping[str, str]) -> Value:
        unknown = False
        for part in parts:
            truth = _truth(part(properties))
            if truth is False:
                return False
            unknown |= truth is None
        return None if unknown else True

    return evaluate


def _negated(part: Expression) -> Expression:
    def evaluate(properties: Mapping[str, str]) -> Value:
        truth = _truth(part(properties))
        return None if truth is None else not truth

    return evaluate


def _is_null(part: Expression, *, negated: bool) -> Expression:
    return lambda properties: (part(properties) is None) is not negated


def _in(part: Expression, texts: frozenset[str]) -> Expression:
    def evaluate(properties: Mapping[str, str]) -> Value:
        operand = part(properties)
        return None if operand is None else str(operand) in texts

    return evaluate


def _compared(left: Expression, right: Expression, holds: Callable[[int], bool]) -> Expression:
    def evaluate(properties: Mapping[str, str]) -> Value:
        order = _order(left(properties), right(properties))
        return None if order is None else holds(order)

    return evaluate


def _order(left: Value, right: Value) -> int | None:
    """−1, 0 or 1; None: they can't be compared."""
    if left is None or right is None:
        return None
    if isinstance(left, bool) or isinstance(right, bool):
        return int(str(left).lower() != str(right).lower())
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    one, other = (_number(side) if isinstance(side, str) else side for side in (left, right))
    if one is None or other is None:
        return None
    return (one > other) - (one < other)


def _number(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return None


def _truth(value: Value) -> bool | None:
    """What counts as true: TRUE, and a property that says so."""
    if isinstance(value, str):
        return value.lower() == "true"
    return value if isinstance(value, bool) else None
