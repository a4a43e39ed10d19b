"""The package as one zip, for executors that have none: `--py-files`, `spark.submit.pyFiles`.

All of `engine` and `rstore_cli`, whatever imports what: an executor's Python needs numpy and pyarrow beside it (and
numba, where it is to be fast), and no rstore. Equal sources give equal bytes.

`python -m engine.pipeline.package FILE` writes it, as `make dist` does.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

from engine.errors import InvalidArgument, from_os_error

_TOPS = ("engine", "rstore_cli")
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first time that a zip can say: files have no other."""
_MODE = 0o100644 << 16


def build_zip(path: str | os.PathLike[str]) -> Path:
    """Write the zip at `path`, whose directory is made when it is missing; the path.

    Raises:
        StorageError, DiskFull.
    """
    target = Path(path)
    root = Path(__file__).resolve().parents[2]
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in sorted(file for top in _TOPS for file in (root / top).rglob("*.py")):
                    info = zipfile.ZipInfo(file.relative_to(root).as_posix(), _EPOCH)
                    info.compress_type = zipfile.ZIP_DEFLATED
                    info.external_attr = _MODE
                    archive.writestr(info, file.read_bytes())
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise from_os_error(error, "writing", target) from error
    return target


def main(words: list[str]) -> int:
    """One argument: the file. Raises InvalidArgument, StorageError."""
    if len(words) != 1:
        raise InvalidArgument("FILE is required", hint="python -m engine.pipeline.package FILE")
    print(build_zip(words[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
