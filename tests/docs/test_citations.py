"""Every document, section and rule that a docstring, a comment, a text or a document names is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.citations import ROOT, cited, cited_in, documents, linked, problem, sources

MD = "." + "md"
"""So that the offenders below are none of this file's."""

WRITTEN = {
    "report": "rstore bench",
    "proof": "python -m tests.proof",
    "kills": "python -m tests.proof --kills",
    "loss": "make interop",
    "conversation": "make interop",
    "FILE": "a name that a user gives",
    "r": "a report that a test has written",
}
"""Documents that a command writes, by stem: they are named, and are no part of the repository."""


def is_written(target: str) -> bool:
    return Path(target).stem in WRITTEN


def test_what_a_module_names_is_there() -> None:
    wrong = []
    for path in sources():
        found = [one for one in cited_in(path) if not is_written(one.target)]
        wrong += [f"{path.relative_to(ROOT)}: {why}" for one in found if (why := problem(one, path))]
    assert wrong == []


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_names_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = [one for one in (*cited_in(path), *linked(text)) if not is_written(one.target)]
    assert [why for one in found if (why := problem(one, path))] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"The bytes (nowhere{MD}).", f"nowhere{MD}: no such document"),
        (f"see engine/nowhere/FORMAT{MD}", f"engine/nowhere/FORMAT{MD}: no such document"),
        (f"as remoting{MD} 1.1 has it", f"remoting{MD}: no such document"),
        (f"REMOTING{MD} 9.9;", f"REMOTING{MD}: no section 9.9"),
        (f"REMOTING{MD} 1.1, 9.9, and", f"REMOTING{MD}: no section 9.9"),
        (f"(REMOTING{MD}, sections 1 and 9)", f"REMOTING{MD}: no section 9"),
        (f"RECOVERY{MD}, rule 99", f"RECOVERY{MD}: no rule 99"),
        (f"RECOVERY{MD}, rules 3, 99)", f"RECOVERY{MD}: no rule 99"),
        (f'# FORMAT{MD}, "No such\n# heading"', f"FORMAT{MD}: no section 'No such heading'"),
        (f"CHECK{MD}#nothing", f"CHECK{MD}: no anchor #nothing"),
    ],
)
def test_what_leads_nowhere_is_found(text: str, why: str) -> None:
    assert [problem(one, ROOT / "engine" / "store.py") for one in cited(text)] == [why]


@pytest.mark.parametrize(
    "text",
    [
        f"FORMAT{MD}", f'FORMAT{MD} "Record";', f"REMOTING{MD} 1.1, 1.2; RemotingCommand",
        f"RECOVERY{MD}, rules 3, 14, 15)", f"BROKER{MD} 2.6. Then",
        f'RECOVERY{MD}, "When record and\n    unit disagree"', f"engine/inspect/CHECK{MD}#findings", f"README{MD}",
    ],
)  # fmt: skip
def test_what_leads_somewhere_is_no_offender(text: str) -> None:
    assert [problem(one, ROOT / "engine" / "store.py") for one in cited(text)] == [None]


def test_links_are_followed() -> None:
    page = ROOT / "engine" / "README.md"
    text = f"[a](format/FORMAT{MD}) [b](format/FORMAT{MD}#no) [c](#layers) [d](#no) [e](https://a.b/c{MD}) [f](no/)"
    assert [problem(one, page) for one in linked(text)] == [
        None,
        f"format/FORMAT{MD}: no anchor #no",
        None,
        ": no anchor #no",
        "no/: no such document",
    ]


def test_every_document_that_is_written_is_named() -> None:
    named = {Path(one.target).stem for path in (*sources(), *documents()) for one in cited_in(path)}
    assert WRITTEN.keys() <= named
