"""GLOSSARY.md: one term a thing, and the words that are not used for it are in no text that a user reads.

Help, string literals with a blank in them (errors, findings, plans, log lines, notes), and the prose of the documents.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rstore_cli import _spark
from rstore_cli.app import COMMANDS, Commands
from tests.docs.markdown import Table, tables

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "engine" / "GLOSSARY.md"

IDIOM = (
    r"a body that its CRC doesn't fit",
    r"not what its CRC says",
    r"says what can't be",
    r"files of \S+ bytes can't be",
    r"is no pool",
    r"is no int\b",
    r"heartbeat that is none",
    r"can't accept, and will",
    r"was not written, and will be",
    r"a timer failed, and goes on",
    r"an account twice",
    r"dispatch met something",
    r"puts go beside",
    r"not let in\b",
    r"[Tt]he newest so many",
    r"[Ll]ast so many hours",
    r"worth a line of the log",
    r"can't be gone on with",
    r"the top \S+ of them\?",
    r"\bwhich (topic|queue|drills?)\?",
    r"no longer what it was",
    r"has no use for",
    r"is told by who",
    r"who is hurt",
    r"hold no message that stays",
    r"no files with no records go\b",
    r"stops there: no reason to delete",
    r"begins then at",
    r"a broker opens\b",
    r"files that go\b",
    r"of the log's end are in them",
    r"nobody knows what is unread",
    r"have read everything",
    r"segments go though",
    r"shows the neighbour's message",
    r"units that the log denies",
    r"carried out should be",
    r"the middle of a record, which takes",
    r"[Ww]hat is odd",
    r"none changes\b",
)
"""Whole turns of phrase that were replaced, whatever number stands in them."""

RIGHT: dict[str, dict[str, str]] = {
    "README.md": {"On a rescue system, in a directory": "a system that is started to rescue another one"},
    "engine/repair/PROOF.md": {"is a dangling link": "of a link, not of a unit"},
    "engine/pipeline/PIPELINE.md": {"search for garbage that Spark creates": "of Python's memory, not of a log"},
    "engine/inspect/store/odd.py": {
        "a queue's file that holds nothing, behind a gap": "in manifests of earlier versions"
    },
    "engine/client/allocate.py": {"in which machine room": "Apache's name of it"},
    "engine/pipeline/ready.py": {"{} {} is too old": "of a package's version"},
    "engine/repair/recover/pieces.py": {
        "queue entries that don't match the log": "whatever the bytes of a queue's file are: units, or none"
    },
    "engine/repair/recover/log_end.py": {"Callable[[RecordBatch | Remembered, Derived | None], None]": "a type"},
    "engine/repair/salvage/salvage.py": {"behind the log's end": "in manifests of earlier versions"},
}
"""File → a text that has such a word, and why it is right there."""

DOCUMENTS = (
    "README.md",
    "engine/README.md",
    "engine/repair/PROOF.md",
    "RUNBOOK.md",
    "CONTRIBUTING.md",
    "rstore_cli/CLI.md",
    "engine/drill/DRILLS.md",
    "engine/pipeline/PIPELINE.md",
    "engine/inspect/CHECK.md",
    "engine/repair/RECOVERY.md",
    "engine/broker/BROKER.md",
    "engine/broker/SERVE.md",
    "engine/format/FORMAT.md",
    "engine/wire/REMOTING.md",
    "engine/client/CLIENT.md",
    "engine/copying/COPYING.md",
)


def rows() -> Table:
    """Every row of every table, code marks kept."""
    return [row for table in tables(GLOSSARY.read_text(encoding="utf-8"), marks=True) for row in table]


def marked(cell: str) -> list[str]:
    """What stands in code marks."""
    return re.findall(r"`([^`]+)`", cell)


def held() -> set[str]:
    """The words that no text may have. What stands in brackets is right elsewhere."""
    return {word for row in rows() for word in marked(re.sub(r"\([^)]*\)", "", row["not"]))}


@functools.cache
def helps() -> Mapping[str, str]:
    """A command's or a group's words → its help, with that of its arguments and options, in one line.

    The options that jobs on Spark share are `pipeline JOB`, and none of a job's own: a new job has them, too.
    """
    group = Commands(name="rstore")
    shared = [one.help for kind in vars(_spark).values() for one in getattr(kind, "__metadata__", ())]
    found = {"rstore": " · ".join(COMMANDS.values()), "pipeline JOB": " · ".join(shared)}

    def add(words: str, command: Any) -> None:
        texts = [command.help, *(getattr(param, "help", None) for param in command.params)]
        if words.startswith("pipeline "):
            texts = [text for text in texts if text not in shared]
        found[words] = " ".join(" · ".join(text for text in texts if text).split())
        for name, inner in getattr(command, "commands", {}).items():
            add(f"{words} {name}", inner)

    for name in COMMANDS:
        add(name, group.get_command(None, name))  # type: ignore[arg-type]
    return found


def offenders(words: Iterable[str], texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Word and command, where a text has the word as a whole; options (`--until-caught-up`) are no words."""
    lowered = {name: text.lower() for name, text in texts.items()}
    for word in words:
        having = [name for name, text in lowered.items() if word.lower() in text]  # few, and quickly found
        whole = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])", re.IGNORECASE)
        yield from ((word, name) for name in having if whole.search(texts[name]))


def literals(source: str) -> Iterator[str]:
    """Every string with a blank in it but docstrings; what an f-string fills in is {}."""
    tree = ast.parse(source)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield text


def prose(text: str) -> str:
    """A document without what is quoted: code blocks, code marks, comments."""
    text = re.sub(r"^```\w*\n.*?^```|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^ {4}.*$|`[^`\n]*`", "x", text, flags=re.MULTILINE)


@functools.cache
def texts() -> Mapping[str, str]:
    """File → its texts, one a line, without those that are right."""
    found = {name: prose((ROOT / name).read_text(encoding="utf-8")) for name in DOCUMENTS}
    for folder in ("engine", "rstore_cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = [" ".join(text.split()) for text in literals(path.read_text(encoding="utf-8"))]
            found[str(path.relative_to(ROOT))] = "\n".join(lines)
    for name, right in RIGHT.items():
        for text in right:
            assert text in " ".join(found[name].split()), f"{name} has no longer: {text}"
            found[name] = " ".join(found[name].split()).replace(text, "")
    return found


def test_no_text_has_a_word_that_is_not_used() -> None:
    assert set(offenders(held(), texts())) == set(), "a text has a word that GLOSSARY.md does not use"


def test_no_text_has_a_turn_of_phrase_that_was_replaced() -> None:
    found = [(name, turn) for name, text in texts().items() for turn in IDIOM if re.search(turn, text)]
    assert found == []


def test_literals_are_those_that_people_read() -> None:
    source = 'def f(n):\n    """No text."""\n    return "one" + "a row" + f"{n:d} rows of {n}"\n'
    assert sorted(literals(source)) == ["a row", "{} rows of {}"]


def test_prose_is_what_is_not_quoted() -> None:
    text = "Behind `x behind`\n\n    $ behind\n\n```\nbehind\n```\n<!-- behind -->\n"
    assert re.findall("behind", prose(text), re.IGNORECASE) == ["Behind"]


def test_no_help_text_has_a_word_that_is_not_used() -> None:
    assert list(offenders(held(), helps())) == []


def test_a_text_with_such_a_word_is_found() -> None:
    texts = {"a": "Behind the damage.", "b": "with --behind or left-behind", "c": "The queue row, and so on"}
    assert sorted(offenders(["behind", "queue row"], texts)) == [("behind", "a"), ("queue row", "c")]


def test_every_command_is_looked_at() -> None:
    assert {*COMMANDS, "rstore", "salvage scan", "pipeline verify", "pipeline JOB"} <= helps().keys()
    assert "Spark's master" in helps()["pipeline JOB"]  # the options that jobs share
    assert "Show the plan and change nothing" in helps()["recover"]  # options, too


def test_a_term_stands_once_and_is_no_other_terms_wrong_word() -> None:
    terms = [term.strip() for row in rows() for term in re.split("[,;]", row.get("term", "")) if term.strip()]
    assert [term for term, times in Counter(terms).items() if times > 1] == []
    assert not held() & set(terms)


@pytest.mark.parametrize("row", [row for row in rows() if "term" in row], ids=lambda row: row["term"])
def test_a_term_is_whole(row: dict[str, str]) -> None:
    assert len(row["means"]) > 10
    for place in marked(row["in the code"]):
        assert (ROOT / place).exists(), place
