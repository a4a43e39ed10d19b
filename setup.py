"""Man pages and completions, made from the commands when the wheel is built; all else is in pyproject.toml."""

import sys
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from rstore_cli.man_pages import write  # noqa: E402 - found by the line above

version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
files = [
    (place, [str(Path(name).relative_to(ROOT)) for name in names]) for place, names in write(ROOT / "build", version)
]
setup(data_files=files)
