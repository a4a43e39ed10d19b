"""CHECK.md lists every finding of check and doctor, as the code has it."""

from __future__ import annotations

from engine.inspect import finding
from engine.inspect.check.doctor import DOCTOR_CODES
from engine.inspect.finding_codes import CODES
from engine.inspect.status.status import STATUS_CODES
from engine.repair.start.upgrade_rules import RULES
from tests.docs.markdown import section, tables
from tests.docs.test_readme import ROOT

CHECK = ROOT / "engine" / "inspect" / "CHECK.md"


def test_the_table_is_that_of_the_code() -> None:
    rows = tables(section(CHECK, "Findings"))[0]
    stated = [(row["code"].strip("`"), row["severity"], row["message"]) for row in rows]
    assert stated == [(name, code.severity.value, code.what) for name, code in CODES.items()]


def test_the_table_of_doctor_is_that_of_the_code() -> None:
    rows = tables(section(CHECK, "Doctor"))[0]
    own = {name: code for name, code in DOCTOR_CODES.items() if name not in CODES}
    assert {row["code"]: (row["severity"], row["message"]) for row in rows} == {
        name: (code.severity.value, code.what) for name, code in own.items()
    }
    for name in DOCTOR_CODES.keys() & CODES.keys():
        assert DOCTOR_CODES[name] is CODES[name]
        assert f"`{name}`" in section(CHECK, "Doctor")


def test_the_table_of_upgrades_is_that_of_the_code() -> None:
    rows = tables(section(CHECK, "Another release: `--upgrade-to`"))[0]
    assert [(row["code"], row["severity"], row["message"], row["read since"]) for row in rows] == [
        (name, rule.severity.value, rule.what, rule.since or "") for name, rule in RULES.items()
    ]


def test_the_table_of_status_is_that_of_the_code() -> None:
    rows = tables(section(CHECK, "Status"))[0]
    own = {name: code for name, code in STATUS_CODES.items() if name not in CODES and name not in DOCTOR_CODES}
    assert {row["code"]: (row["severity"], row["message"]) for row in rows} == {
        name: (code.severity.value, code.what) for name, code in own.items()
    }
    for name in STATUS_CODES.keys() & CODES.keys():
        assert STATUS_CODES[name] is CODES[name]
        assert f"`{name}`" in section(CHECK, "Status")


def test_the_parts_are_there() -> None:
    parts = [*tables(section(CHECK, "How it reads a store"))[0], *tables(section(CHECK, "Status"))[1]]
    for name in (name for row in parts for name in row["where"].split(", ")):
        assert (CHECK.parent / name).is_file(), name


def test_places_are_as_many_as_stated() -> None:
    assert f"at most {finding.PLACES} places" in CHECK.read_text(encoding="utf-8")
