"""A hundred thousand queues on four thousand descriptors: made, read, closed, opened, killed, recovered, checked."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.wide import WIDE

TOPICS, DESCRIPTORS = (1000, 4096) if WIDE else (4, 100)
QUEUES = 100
"""Of each topic."""
MEMORY = Path("/dev/shm")
SPACE = 3 << 30
"""Bytes that the store takes at most: each queue has two directories and a file of a page."""

_CHILD = """
import os, resource, sys
topics, queues, descriptors = map(int, sys.argv[3:])
resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
from pathlib import Path
from engine.config import StoreConfig
from engine.files.open_files import most_maps
from engine.format.message import Message
from engine.store import MessageStore
config = StoreConfig(
    store_path_root_dir=Path(sys.argv[1]), mapped_file_size_commit_log=1 << 22, mapped_file_size_consume_queue=400,
    message_index_enable=False,
)
every = [(f"T{topic}", queue_id) for topic in range(topics) for queue_id in range(queues)]
def put(store):
    for topic, queue_id in every:
        assert store.put(Message(topic, b"body", queue_id)).ok
def read(store, count):
    assert store.wait_dispatched(600_000), store.errors
    for topic, queue_id in every:
        assert store.max_offset(topic, queue_id) == count
        assert len(store.get(topic, queue_id, count - 1).messages) == 1
    maps = sum("/consumequeue/" in line for line in open("/proc/self/maps"))
    assert 0 < maps <= most_maps() + 64, maps
    assert len(os.listdir("/proc/self/fd")) < 64
store = MessageStore.open(config)
if sys.argv[2] == "made":
    put(store)
    read(store, 1)
    store.close()
elif sys.argv[2] == "opened":
    read(store, 1)
    put(store)
    read(store, 2)
    os._exit(9)
else:
    read(store, 2)
    store.close()
"""
_CHECK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
from rstore_cli.app import main
main(["--store", sys.argv[2], "check"])
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """In memory, where there is enough: a disk syncs each of the files and directories."""
    if not WIDE or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < 2 * SPACE:
        yield tmp_path / "store"
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        yield Path(directory) / "store"


def run(*words: str) -> None:
    done = subprocess.run([sys.executable, "-c", *words], capture_output=True, text=True, check=False)
    assert done.returncode == (9 if words[2] == "opened" else 0), done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.wide
@pytest.mark.timeout(3600)
def test_more_queues_than_descriptors_and_maps(root: Path) -> None:
    """Of 100,000 queue files 49,000 can be mapped at a time (vm.max_map_count), and none keeps a descriptor."""
    for step in ("made", "opened", "recovered"):
        run(_CHILD, str(root), step, str(TOPICS), str(QUEUES), str(DESCRIPTORS))
    run(_CHECK, str(DESCRIPTORS), str(root))
