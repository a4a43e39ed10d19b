"""JSON to HTML: templates that escape everything, with the filters that they use.

Nothing that comes from a message, a client or a file reaches a page as markup, as a script or as part of an address
that it could change: text is escaped by Jinja, and characters that act on the direction of text are written out.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from engine.console.web.words import translated
from engine.format.quantities import moment
from engine.format.shown import printable, size

HOME = Path(__file__).parent.parent
STATIC = HOME / "static"


def filled(name: str, language: str, **values: Any) -> str:
    """A template, filled."""
    text = partial(translated, language=language)
    return _environment().get_template(name).render(t=text, language=language, **values)


@cache
def _environment() -> Environment:
    """Made once a process: a template is compiled when it is first asked for."""
    environment = Environment(
        loader=FileSystemLoader(HOME / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
        auto_reload=False,
    )
    environment.filters |= {
        "size": _size,
        "number": _number,
        "moment": _moment,
        "part": quoted,
        "query": _query,
        "percent": lambda value: "" if value is None else f"{value * 100:.1f} %",
        "data": lambda value: orjson.dumps(value).decode(),
        "tail": lambda path: "/".join(("…", *path.split("/")[-2:])) if path.count("/") > 2 else path,
        "lines": _lines,
        "style": Markup,  # of our own style sheet alone: see engine.console.report
    }
    return environment


def quoted(value: Any) -> str:
    """A name as one part of a path. A part of dots alone would lead elsewhere."""
    text = quote(str(value), safe="", errors="surrogatepass")
    return text.replace(".", "%2E") if not text.strip(".") else text


def _query(fields: dict[str, Any]) -> str:
    return urlencode({name: value for name, value in fields.items() if value not in (None, "")}, errors="surrogatepass")


def _shown(value: Any) -> Any:
    """What each expression of a template goes through before it is escaped."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _lines(text: str) -> Markup:
    """Text of several lines, its lines kept."""
    return Markup("\n").join(printable(line) for line in text.replace("\t", "    ").split("\n"))


def _size(value: int | None) -> str:
    return "" if value is None else size(int(value))


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def _moment(millis: int | None) -> str:
    return moment(int(millis)) if millis else "–"
