"""The house as engine/README.md draws it: imports point down only, the format does no I/O, pyspark has one door."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LEVELS = {
    "engine": 0,
    "engine.dataclass": -1,
    "engine.errors": 0,
    "engine.broker_conf": 1,
    "engine.config": 1,
    "engine.format": 1,
    "engine.wire": 1,
    "engine.files": 2,
    "engine.log": 3,
    "engine.services": 4,
    "engine.inspect": 4,
    "engine.repair": 5,
    "engine.seals": 5,
    "engine.store_parts": 6,
    "engine.store": 6,
    "engine.read_store": 6,
    "engine.client": 6,
    "engine.daemon": 6,
    "engine.put_run": 7,
    "engine.read_queue": 7,
    "engine.replay": 7,
    "engine.copying": 7,
    "engine.store_lives": 7,
    "engine.tail_log": 7,
    "engine.broker": 7,
    "engine.backup": 7,
    "engine.pipeline": 7,
    "engine.rewind": 8,
    "engine.heal": 8,
    "engine.drill": 8,
    "engine.bench": 8,
    "engine.console": 8,
    "rstore_cli": 9,
}
"""Each part of the house and its floor. A module may import its own part and parts of lower floors."""

BESIDE = {
    ("engine.console", "engine.drill"),
    ("engine.pipeline", "engine.backup"),
    ("engine.broker", "engine.backup"),
    ("engine.broker_conf", "engine.format"),
    ("engine.config", "engine.broker_conf"),
    ("engine.config", "engine.format"),
    ("engine.repair", "engine.seals"),
    ("engine.store", "engine.store_parts"),
    ("engine.wire", "engine.format"),
}
"""Imports within one floor that are wanted: settings and frames are made of what the format declares, a store's
settings of what a broker makes of its file, the open store of its parts; a repair removes the seals of what it changes;
jobs on Spark read repositories as they read stores; a daemon archives what its retention is to delete."""

ROOMS: dict[str, dict[str, set[str]]] = {
    "engine.inspect": {
        "": set(),
        "store": {""},
        "check": {"", "store"},
        "status": {"", "store", "check"},
        "dump": {"", "store", "check"},
    },
    "engine.repair": {
        "": set(),
        "salvage": {""},
        "recover": {"", "salvage"},
        "truncate": {"", "recover"},
        "reindex": {"", "salvage", "recover"},
        "replay": {"recover"},
        "config": {"", "salvage"},
        "expire": {""},
        "start": {"recover"},
    },
}
"""Which rooms of a part each of its rooms may import from; "" has the modules that lie in no room. No arrow goes both
ways, so that what a room may do can be told from its name."""

NO_IO_MODULES = {
    "os",
    "io",
    "pathlib",
    "shutil",
    "socket",
    "subprocess",
    "mmap",
    "tempfile",
    "asyncio",
    "fcntl",
    "threading",
}


def modules() -> list[Path]:
    return sorted(path for top in ("engine", "rstore_cli") for path in (ROOT / top).rglob("*.py"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def part_of(module: str) -> str:
    """engine.format.message → engine.format; rstore_cli.app → rstore_cli."""
    parts = module.split(".")
    return parts[0] if parts[0] != "engine" else ".".join(parts[:2])


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, wherever in it (TYPE_CHECKING and functions, too), with its line."""
    module = module_name(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node, _ in import_nodes(path.read_text(encoding="utf-8")):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        else:
            base = node.module or ""
            if node.level:
                above = package.split(".")[: package.count(".") + 2 - node.level]
                base = ".".join([*above, base] if base else above)
            if base in ("engine", "rstore_cli"):
                yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield base, node.lineno


@functools.cache
def import_nodes(text: str) -> tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]:
    """Every import of a module, wherever in it, and whether it runs: those below TYPE_CHECKING do not."""
    seen: list[tuple[ast.Import | ast.ImportFrom, bool]] = []
    todo: list[tuple[ast.AST, bool]] = [(ast.parse(text), True)]
    while todo:
        node, runs = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            seen.append((node, runs))
        runs &= not (isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING")
        todo.extend((child, runs) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
    return tuple(seen)


def import_graph(paths: list[Path], *, running: bool = False) -> dict[str, set[str]]:
    """Which of these modules imports which, wherever in it: functions, too, and TYPE_CHECKING unless `running`."""
    every = {module_name(path): path for path in paths}
    found: dict[str, set[str]] = {}
    for module, path in every.items():
        named: set[str] = set()
        for node, runs in import_nodes(path.read_text(encoding="utf-8")):
            if running and not runs:
                continue
            if isinstance(node, ast.Import):
                named.update(alias.name for alias in node.names)
            else:
                named.update({node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)})
        found[module] = named & every.keys() - {module}
    return found


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """Modules that reach themselves, or lie between two that do: those that are left when who imports none of the
    others, and whom none of the others imports, is taken away, again and again."""
    left = dict(graph)
    while True:
        imported = set().union(*left.values())
        ends = [module for module, named in left.items() if not named & left.keys() or module not in imported]
        if not ends:
            return sorted(left)
        for module in ends:
            del left[module]


def top(name: str) -> str:
    """The outermost package of a module."""
    return name.partition(".")[0]


def is_ours(name: str) -> bool:
    return top(name) in ("engine", "rstore_cli")


def importers(paths: list[Path], packages: set[str]) -> list[str]:
    """Lines that import one of these packages."""
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in paths
        for name, line in imports(path)
        if top(name) in packages
    ]


def room_of(module: str, part: str) -> str:
    """engine.inspect.store.survey → store; "" for what lies in no room."""
    rest = module.removeprefix(part).strip(".").split(".")
    return rest[0] if rest[0] in ROOMS[part] else ""


def wrong(path: Path) -> list[str]:
    """Imports of a file that point up or sideways."""
    module = module_name(path)
    own = part_of(module)
    place = path.relative_to(ROOT)
    found = []
    for name, line in imports(path):
        if not is_ours(name):
            continue
        part = part_of(name)
        if part != own and (own, part) not in BESIDE and LEVELS[part] >= LEVELS[own]:
            found.append(f"{place}:{line} imports {name} (floor {LEVELS[part]} from {LEVELS[own]})")
        if part == own and part in ROOMS:
            mine, theirs = room_of(module, part), room_of(name, part)
            if mine != theirs and theirs not in ROOMS[part][mine]:
                found.append(f"{place}:{line} imports {name} (room '{theirs}' from '{mine}')")
    return found


def test_imports_point_down_only() -> None:
    assert [one for path in modules() for one in wrong(path)] == []


def test_no_two_rooms_import_each_other() -> None:
    for rooms in ROOMS.values():
        below: dict[str, set[str]] = {room: set(reached) for room, reached in rooms.items()}
        for _ in rooms:
            for room, reached in below.items():
                below[room] = reached.union(*(below[one] for one in reached))
        assert [room for room, reached in below.items() if room in reached] == []


@pytest.mark.parametrize("part", ROOMS)
def test_every_folder_is_a_room(part: str) -> None:
    folders = {path.parent.name for path in (ROOT / part.replace(".", "/")).glob("*/__init__.py")}
    assert folders == ROOMS[part].keys() - {""}


def test_every_part_has_a_floor() -> None:
    assert {part_of(module_name(path)) for path in modules()} <= LEVELS.keys()


@pytest.mark.parametrize("path", sorted((ROOT / "engine" / "format").glob("*.py")), ids=module_name)
def test_the_format_does_no_io(path: Path) -> None:
    assert [name for name, _ in imports(path) if top(name) in NO_IO_MODULES] == []
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    assert [
        call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id in ("open", "print")
    ] == []


BROKER = ROOT / "engine" / "broker"


def test_no_imports_that_run_go_in_a_circle() -> None:
    """Neither at a module's top nor, later, in a function: an import put there to hide a circle is none the better."""
    assert cycles(import_graph(modules(), running=True)) == []


def test_no_module_of_the_daemon_imports_itself_by_way_of_others() -> None:
    assert cycles(import_graph(sorted(BROKER.rglob("*.py")))) == []


def test_only_the_daemon_itself_knows_its_composition() -> None:
    """No part is handed the whole broker: it could use anything of it, and everything would hang on everything."""
    graph = import_graph(modules())
    assert [module for module, named in graph.items() if "engine.broker.broker" in named] == ["engine.broker.serve"]
    tree = ast.parse((BROKER / "broker.py").read_text(encoding="utf-8"))
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    given = ((call.lineno, value) for call in calls for value in (*call.args, *(one.value for one in call.keywords)))
    assert [line for line, value in given if isinstance(value, ast.Name) and value.id == "self"] == []


def test_a_circle_of_imports_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "a": "if TYPE_CHECKING:\n    from engine.broker import b",
        "b": "def f():\n    from engine.broker.c import x",
        "c": "import engine.broker.a",
        "d": "from engine.broker.c import y",
        "e": "",
    }
    (tmp_path / "engine" / "broker").mkdir(parents=True)
    for name, text in texts.items():
        (tmp_path / "engine" / "broker" / f"{name}.py").write_text(text)
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    graph = import_graph(sorted((tmp_path / "engine" / "broker").glob("*.py")))
    assert cycles(graph) == [f"engine.broker.{name}" for name in "abc"]
    assert cycles({**graph, "engine.broker.c": set()}) == []
    assert cycles(import_graph(sorted((tmp_path / "engine" / "broker").glob("*.py")), running=True)) == []
    (tmp_path / "engine" / "broker" / "a.py").write_text("def f():\n    from engine.broker import b")
    assert cycles(import_graph(sorted((tmp_path / "engine" / "broker").glob("*.py")), running=True)) == [
        f"engine.broker.{name}" for name in "abc"
    ]


def test_only_the_pipeline_knows_spark() -> None:
    others = [path for path in modules() if part_of(module_name(path)) != "engine.pipeline"]
    assert importers(others, {"pyspark", "pyarrow"}) == []


def test_the_product_knows_no_tests() -> None:
    assert importers(modules(), {"tests", "pytest", "hypothesis", "pyfakefs", "crcmod"}) == []


@pytest.mark.parametrize(
    ("place", "text", "seen"),
    [
        ("engine/format/x.py", "from engine.files.disk import Disk", "engine.files.disk"),
        ("engine/log/x.py", "def f():\n    import engine.repair.recover.plan", "engine.repair.recover.plan"),
        ("engine/files/x.py", "from engine import store", "engine.store"),
        ("engine/files/x.py", "from ..log import scan", "engine.log"),
        ("engine/services/x.py", "from engine.repair import plan", "engine.repair"),
        ("engine/inspect/store/x.py", "from engine.repair.recover import plan", "engine.repair.recover"),
        ("engine/inspect/store/x.py", "import engine.inspect.check.verify", "engine.inspect.check.verify"),
        ("engine/repair/salvage/x.py", "from engine.repair.recover import plan", "engine.repair.recover"),
        ("engine/store.py", "import rstore_cli.app", "rstore_cli.app"),
        ("engine/errors.py", "from engine.format import names", "engine.format"),
    ],
)
def test_an_import_that_points_up_is_noticed(
    place: str, text: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text(text)
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (message,) = wrong(path)
    assert f"imports {seen}" in message
