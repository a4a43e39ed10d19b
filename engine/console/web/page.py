"""What a page is: a path, what it answers as JSON, and the template that draws that JSON. Declared in `pages/`."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from engine.console.web.sessions import ConsoleRight
from engine.dataclass import dataclass

if TYPE_CHECKING:
    from engine.console.web.asked import Asked

Answer = Callable[["Asked"], Awaitable[dict[str, Any]]]


class Part(enum.Enum):
    """What a page is about, and so what a console must have been started with."""

    CLUSTER = "cluster"
    STORE = "store"
    BOTH = "both"
    """Of the console itself."""


@dataclass(frozen=True, slots=True)
class Page:
    """See the module.

    Attributes:
        path: as aiohttp matches it.
        title: words of the catalogue.
        template: of the file in templates/.
        answer: what is shown, as JSON: the fields that the command of the same name prints.
        right: that it asks for.
        menu: whether it stands in the menu.
        under: the path of the page in the menu that it belongs to.
        download: a file, {"name", "data": hex}, that a browser saves and does not show.
    """

    path: str
    title: str
    template: str
    answer: Answer
    part: Part
    right: ConsoleRight = ConsoleRight.LOOK
    menu: bool = False
    under: str = ""
    download: bool = False
