"""The differences between Apache's broker and ours that are so on purpose, each with its reason."""

from __future__ import annotations

from tests.compat.conversation.table import Explained

EXPLAINED: list[Explained] = [
    Explained(
        "*",
        "remark",
        "Java's exception and its stack; ours says what is wrong",
        theirs=r"(java|org|com)\.[\w.$]+(Exception|Error)\b.*",
    ),
]
