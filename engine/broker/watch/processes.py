"""Processes beside the daemon, which end when their stdin does: also when the daemon is killed."""

from __future__ import annotations

import subprocess

END_S = 5.0
"""How long one has to end by itself."""


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Close its stdin, and kill it where it does not end then."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
