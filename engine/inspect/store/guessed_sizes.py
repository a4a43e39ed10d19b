"""Sizes of files that are about to be made, where neither a setting nor a file tells them: Apache's defaults, in words.

A broker whose own settings say otherwise does not load such files; and an index file of Apache's is 420 MB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.inspect.store.survey import StoreFiles

_GIVE_IT = "; if the broker uses another size, give it with -c broker.conf, or the broker does not start"


def guessed_sizes(files: StoreFiles, *, queues: bool, index: bool) -> list[str]:
    """What is to be known before files are made. `queues`, `index`: whether such files are."""
    given, out = files.config.given, []
    if queues and "mapped_file_size_consume_queue" not in given and not any(q.files for q in files.queues):
        size = files.config.mapped_file_size_consume_queue
        out.append(f"queue file size unknown: new files get Apache's default, {size} bytes" + _GIVE_IT)
    if index and "max_index_num" not in given and not any(index_file.whole for index_file in files.index):
        size = files.index_layout.file_size
        out.append(f"index file size unknown: new files get Apache's default, {size} bytes" + _GIVE_IT)
    return out


def of_puts(files: StoreFiles) -> list[str]:
    """The same of a store that takes puts. One without any log is new, and has the sizes that it was given.

    One of RocketMQ 5 takes none.
    """
    return (
        guessed_sizes(files, queues=True, index=files.config.message_index_enable)
        if files.log and not files.newer
        else []
    )
