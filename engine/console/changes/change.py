"""What a change is, as a console offers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine.console.changes.plans import ShownPlan
    from engine.console.web.asked import Asked


class ConsoleChange(Protocol):
    """A change by its name: `POST /change/NAME` plans it, with the fields of the form."""

    @property
    def name(self) -> str:
        """In the address."""

    async def plan(self, asked: Asked) -> ShownPlan:
        """Plan it; changes nothing. Raises RStoreError."""


def by_name(*changes: ConsoleChange) -> dict[str, ConsoleChange]:
    """Changes by their names."""
    return {one.name: one for one in changes}
