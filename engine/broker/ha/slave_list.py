"""haAllow: who may copy a master's log. Addresses and networks as in every allow-list, and the word `registered`.

`registered` are the slaves that a master knows from registration: brokers of its own name with an id above 0, at its
own name server (by the address that their registration came from) or at those that it registers with itself (by the
address that they registered). Whoever may register may then copy: the name server is to be guarded, too.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from engine.broker.net.allow import AllowList, parse_allow_list
from engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

REGISTERED = "registered"
_WORD = re.compile(rf"(?:^|(?<=[,;\s])){REGISTERED}(?=[,;\s]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SlaveList:
    """See the module. Empty: whoever connects.

    Attributes:
        listed: addresses and networks.
        registered: whether slaves that registered are allowed, too.
    """

    listed: AllowList = field(default_factory=AllowList)
    registered: bool = False

    def allows(self, address: str, registered: Iterable[str]) -> bool:
        """Whether a peer may copy. `registered`: addresses of the slaves that registered."""
        if not self or self.listed.allows(address):
            return True
        return self.registered and address in registered

    def __bool__(self) -> bool:
        return self.registered or bool(self.listed)

    def __str__(self) -> str:
        return ", ".join((*([REGISTERED] if self.registered else []), *([str(self.listed)] if self.listed else [])))


def parse_slave_list(text: str, key: str = "haAllow") -> SlaveList:
    """The value of haAllow. `key`: what has it, as an error names it. Raises InvalidArgument."""
    rest, words = _WORD.subn("", text)
    return SlaveList(parse_allow_list(key, rest.strip(" ,;\t\r\n")), bool(words))
