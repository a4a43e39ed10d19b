"""The zip for executors: all of the package, importable from there, the same bytes each time."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine.errors import InvalidArgument, StorageError
from engine.pipeline.package import build_zip, main

ROOT = Path(__file__).resolve().parents[3]


def test_it_is_the_package(tmp_path: Path) -> None:
    found = build_zip(tmp_path / "new" / "rstore.zip")
    with zipfile.ZipFile(found) as package:
        assert sorted(package.namelist()) == sorted(
            path.relative_to(ROOT).as_posix() for top in ("engine", "rstore_cli") for path in (ROOT / top).rglob("*.py")
        )
    assert build_zip(tmp_path / "again.zip").read_bytes() == found.read_bytes()
    assert [path.name for path in found.parent.iterdir()] == ["rstore.zip"]


def test_it_is_imported_from_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "rstore.zip")]) == 0
    zipped = capsys.readouterr().out.strip()
    code = f"import sys; sys.path.insert(0, {zipped!r}); import engine.inspect.check.verify as m; print(m.__file__)"
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"{zipped}/engine/inspect/check/verify.py"


def test_misuse(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="writing"):
        build_zip(tmp_path / "file" / "rstore.zip")
    with pytest.raises(InvalidArgument):
        main([])
