"""SQL92 expressions: what they say of properties, three-valued; what can't be read is told with its place."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.format.message import Message, encode
from engine.log.sql import DEEPEST, MOST, BadExpression, SqlFilter, compile_expression

HERE = {"a": "3", "b": "x", "f": "2.5", "t": "true", "TAGS": "gold", "q": "it's", "neg": "-4"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a = 3", True),
        ("a <> 3", False),
        ("a > 2 AND a < 4", True),
        ("a >= 3.0", True),
        ("a BETWEEN 1 AND 3", True),
        ("a NOT BETWEEN 1 AND 3", False),
        ("f > 2", True),
        ("neg = -4", True),
        ("neg < +1", True),
        ("a = 3L", True),
        ("a < 1e2", True),
        ("b = 'x'", True),
        ("b > 'w'", True),
        ("b IN ('y', 'x')", True),
        ("b NOT IN ('y', 'x')", False),
        ("q = 'it''s'", True),
        ("TAGS in ('gold')", True),
        ("c IS NULL", True),
        ("a IS NOT NULL", True),
        ("t = TRUE", True),
        ("t", True),
        ("NOT t", False),
        ("c = 1", None),
        ("NOT c = 1", None),
        ("c = 1 OR a = 3", True),
        ("c = 1 AND a = 3", None),
        ("c = 1 AND a = 4", False),
        ("b > 1", None),
        ("c IN ('x')", None),
        ("a = 1 OR a = 2 OR a = 3", True),
        ("a = 3 OR a = 1 AND b = 'y'", True),
        ("(a = 3 OR a = 1) AND b = 'y'", False),
        ("NOT (a = 1 OR b = 'y')", True),
        ("NOT NOT a = 3", True),
        ("1 = 1", True),
    ],
)
def test_what_an_expression_says(text: str, value: object) -> None:
    assert compile_expression(text)(HERE) is value
    record = memoryview(encode(Message("T", b"", properties=HERE)))
    assert SqlFilter(text).matches_log(record) is (value is True)
    assert SqlFilter(text).matches_queue(None, None)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", 0),
        ("a =", 3),
        ("a = 3 b", 6),
        ("a = 'x", 4),
        ("(a = 3", 6),
        ("a IN ()", 6),
        ("a IN (3)", 6),
        ("a BETWEEN 1 OR 2", 12),
        ("a NOT 3", 6),
        ("a IS 3", 5),
        ("- b = 3", 2),
        ("a = 3; drop", 5),
        ("AND", 0),
    ],
)
def test_what_can_not_be_read(text: str, place: int) -> None:
    with pytest.raises(BadExpression) as caught:
        compile_expression(text)
    assert caught.value.offset == place


def test_bounds() -> None:
    with pytest.raises(BadExpression, match="characters"):
        compile_expression("a = 1 OR " * MOST)
    with pytest.raises(BadExpression, match="nested"):
        compile_expression("(" * (DEEPEST + 1) + "a = 1" + ")" * (DEEPEST + 1))


@given(st.text("abAND OR()='<>123NULLIS,.-", max_size=60), st.dictionaries(st.sampled_from("ab"), st.text(max_size=3)))
def test_any_text_is_read_or_refused(text: str, properties: dict[str, str]) -> None:
    try:
        found = compile_expression(text)
    except BadExpression as error:
        assert 0 <= (error.offset or 0) <= len(text)  # noqa: PT017
        return
    assert found(properties) in (True, False, None) or isinstance(found(properties), str | int | float)


def test_three_values_are_those_of_sql() -> None:
    """AND, OR and NOT against their tables, by chance over all nestings."""
    chance = random.Random(3)
    atoms = {"a = 3": True, "a = 4": False, "c = 1": None}

    def build(depth: int) -> tuple[str, bool | None]:
        if depth == 0:
            return chance.choice(list(atoms.items()))
        left, right = build(depth - 1), build(chance.randrange(depth))
        kind = chance.choice(("AND", "OR", "NOT"))
        if kind == "NOT":
            return f"NOT ({left[0]})", None if left[1] is None else not left[1]
        both = (left[1], right[1])
        if kind == "AND":
            value = False if False in both else None if None in both else True
        else:
            value = True if True in both else None if None in both else False
        return f"({left[0]}) {kind} ({right[0]})", value

    for _ in range(500):
        text, value = build(4)
        assert compile_expression(text)(HERE) is value, text
