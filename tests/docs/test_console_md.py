"""CONSOLE.md: every page of the menu, and every option of `rstore console`."""

from __future__ import annotations

import re
from pathlib import Path

from engine.console.serve import pages
from rstore_cli.app import command_of
from tests.docs.markdown import section, tables

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "engine" / "console" / "CONSOLE.md"


def test_every_page_stands_in_the_table() -> None:
    rows = tables(section(PAGE, "Pages"))[0]
    stated = {path.split("/{")[0] for row in rows for path in re.findall(r"/[\w/-]+", row["page"])}
    for page in pages():
        if page.menu:
            assert page.path in stated, page.path
    assert {path for path in stated if not path.rpartition("/")[2].isupper()} <= {
        page.path.split("/{")[0] for page in pages()
    }


def test_every_option_stands_in_the_text() -> None:
    text = PAGE.read_text(encoding="utf-8")
    own = {name for one in command_of("console").params for name in one.opts if name.startswith("--")}
    common = {"--config", "--follow-links", "--json", "--quiet", "--help", "--tls-ca"}
    assert {name for name in own - common if name not in text} == set()
