"""Documents that texts name, and whether file, section and rule are there."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.docs.markdown import tables

ROOT = Path(__file__).resolve().parents[2]
TREES = ("engine", "rstore_cli", "tests", "fixtures")

_NUMBER = r"[0-9]+(?:\.[0-9]+)*"
_LIST = rf"{_NUMBER}(?:(?:,\s|\sand\s){_NUMBER}(?!\.?\w))*"
_CITED = re.compile(
    rf"""(?P<path>(?:\.\./|[\w-]+/)*\w[\w-]*(?:\.zh)?\.md)\b`?
    (?:\#(?P<anchor>[\w-]+)
    |,?\s(?:sections?\s|§\s?)?(?P<sections>{_LIST})(?![\w.]*\w)
    |,?\srules?\s(?P<rules>{_LIST})
    |,?\s"(?P<title>[A-Z][^"]+)")?""",
    re.VERBOSE,
)
_LINK = re.compile(r"\[[^\]]*\]\((?P<path>[^)#:\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Citation:
    """What a text names: `target` as it stands there; of it numbers of sections and rules, a title, an anchor."""

    target: str
    sections: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    title: str | None = None
    anchor: str | None = None


def _ours(pattern: str) -> Iterator[Path]:
    """Files below the trees; node's packages, which `make interop` installs below tests/, are not ours."""
    for tree in TREES:
        yield from (path for path in (ROOT / tree).rglob(pattern) if "node_modules" not in path.parts)


@functools.cache
def documents() -> tuple[Path, ...]:
    """Every document of the repository."""
    return tuple(sorted([*ROOT.glob("*.md"), *_ours("*.md")]))


def sources() -> list[Path]:
    """Every module."""
    return sorted(_ours("*.py"))


def cited(text: str) -> Iterator[Citation]:
    """The documents that a module or a document names; lines are joined first, as a citation may be broken."""
    for found in _CITED.finditer(re.sub(r"\s+(?:#:? )?", " ", text)):
        numbers = [tuple(re.findall(_NUMBER, found[part] or "")) for part in ("sections", "rules")]
        yield Citation(found["path"], numbers[0], numbers[1], found["title"], found["anchor"])


@functools.cache
def cited_in(path: Path) -> tuple[Citation, ...]:
    """Of a file: most modules name no document, which is told at once."""
    text = path.read_text(encoding="utf-8")
    return tuple(cited(text)) if ".md" in text else ()


def linked(text: str) -> Iterator[Citation]:
    """The links of a document to files of the repository, or within itself."""
    for found in _LINK.finditer(_FENCED.sub("", text)):
        if found["path"] or found["anchor"]:
            yield Citation(found["path"], anchor=found["anchor"])


def problem(citation: Citation, by: Path) -> str | None:
    """Why a citation in the file `by` leads nowhere; None when it doesn't."""
    path = _found(citation.target, by)
    if path is None:
        return f"{citation.target}: no such document"
    if path.suffix != ".md":
        return None
    known = headings(path)
    for number in citation.sections:
        if not any(title.startswith(f"{number} ") for title in known):
            return f"{citation.target}: no section {number}"
    for rule in citation.rules:
        if rule not in rules_of(path):
            return f"{citation.target}: no rule {rule}"
    wanted = citation.title
    if wanted is not None and not any(title == wanted or title.startswith(f"{wanted} (") for title in known):
        return f"{citation.target}: no section {wanted!r}"
    if citation.anchor is not None and citation.anchor not in map(slug, known):
        return f"{citation.target}: no anchor #{citation.anchor}"
    return None


def _found(target: str, by: Path) -> Path | None:
    """The file: beside the one that names it, in the repository or the engine; a bare name wherever there is one."""
    if not target:
        return by
    for base in (by.parent, ROOT, ROOT / "engine"):
        if (base / target).exists():
            return (base / target).resolve()
    if "/" in target:
        return None
    if target == "README.md":
        return next(path for parent in by.parents if (path := parent / target).exists())
    same = [path for path in documents() if path.name == target]
    return same[0] if len(same) == 1 else None


@functools.cache
def headings(path: Path) -> tuple[str, ...]:
    """The headings of a document."""
    text = _FENCED.sub("", path.read_text(encoding="utf-8"))
    return tuple(re.findall(r"^#+ +(.*?)\s*$", text, flags=re.MULTILINE))


@functools.cache
def rules_of(path: Path) -> frozenset[str]:
    """The numbers in the columns that are called "rule"."""
    every = tables(path.read_text(encoding="utf-8"))
    return frozenset(row["rule"] for table in every for row in table if "rule" in row)


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub and GitLab make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
