"""Who waits for kernels to be compiled reads why, once, where a person looks."""

from __future__ import annotations

import io
import sys

import pytest

from rstore_cli.compiling import LINE, tell_of_compiling

jit = pytest.importorskip("engine.log.kernels.jit")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "quiet", "wanted"), [(Screen, False, LINE + "\n"), (Screen, True, ""), (io.StringIO, False, "")]
)
def test_the_line(stream: type[io.StringIO], quiet: bool, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = stream()
    monkeypatch.setattr(sys, "stderr", said)
    # A daemon that another test ran in this process has left its log behind, with a stream that is closed.
    monkeypatch.setattr(jit.LOGGER, "propagate", False)
    tell_of_compiling(quiet=True)
    tell_of_compiling(quiet=False)
    tell_of_compiling(quiet=quiet)
    jit.LOGGER.info("compiling %s", "one")
    jit.LOGGER.info("compiling %s", "another")
    assert said.getvalue() == wanted
    tell_of_compiling(quiet=True)
