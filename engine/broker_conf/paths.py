"""The store's directories in a broker's settings: what a broker makes of them, and what is dangerous.

Sources: CommitLog#CommitLog, MultiPathMappedFileQueue#getPaths, #getReadonlyPaths and #tryCreateMappedFile. A log that
loads no segment costs the queues, too: CommitLog#recoverNormally ("The commitlog files are deleted, and delete the
consume queue files"). tests/compat/test_starts.py sees it happen.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.broker_conf.facts import VALUE_ALONE, Danger, Facts
from engine.broker_conf.in_force import STORE
from engine.broker_conf.values import COMMENT, as_meant, shown, split

_SEPARATOR = ","
_TRIMMED = "".join(map(chr, range(ord(" ") + 1)))
"""Characters that String#trim takes from both ends."""
_ROOT, _LOG, _READ_ONLY = "storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths"
_EMPTY_LOG = "the broker starts with an empty log and deletes all consume queues"
_NO_PUTS = "the broker starts with an empty log, deletes all consume queues and refuses every put"
_GIVE_ONE = "give it a directory, or remove the line"
_NO_NUL = "write the path without it"


def log_directories(setting: str) -> list[str]:
    """Of storePathCommitLog: a single path as it stands; of several, "" among them, what is between the commas."""
    return split(setting.strip(_TRIMMED), _SEPARATOR) if _SEPARATOR in setting else [setting]


def read_only_directories(setting: str) -> list[str]:
    """Of readOnlyCommitLogStorePaths."""
    return split(setting.strip(_TRIMMED), _SEPARATOR) if setting.strip() else []


def path_dangers(facts: Facts) -> Iterator[Danger]:
    """Those of the three settings. A NUL character in storePathRootDir is one of start_rules."""
    root, log = facts.text(STORE, _ROOT), facts.text(STORE, _LOG)
    yield from _single(facts, _ROOT, root, "the broker starts with another, empty store")
    if _SEPARATOR in log:
        yield from _several(facts, log)
        return
    if _LOG in facts.written:
        yield from _single(facts, _LOG, log, _EMPTY_LOG)
    if "\0" in log:
        yield Danger((_LOG,), f"{_LOG} contains a NUL character: {_NO_PUTS}", _NO_NUL)
    if read_only_directories(facts.text(STORE, _READ_ONLY)):
        what = (
            f"a broker uses {_READ_ONLY} only where {_LOG} names several directories: it does not load those segments"
        )
        yield Danger((_READ_ONLY, _LOG), what, f"end {_LOG} with a comma")


def _single(facts: Facts, key: str, path: str, outcome: str) -> Iterator[Danger]:
    """`outcome`: of a directory that is not the one which was meant."""
    if not path:
        yield Danger((key,), f"{key} is empty: the broker makes its files in /", _GIVE_ONE)
    elif as_meant(path) != path:
        yield _foreign(key, path)
    elif key in facts.misread:
        what = f"{key} = {shown(path)}: {outcome}, as the text after the path is part of its name"
        yield Danger((key,), what, f"set {key} to the path; {VALUE_ALONE}")
    elif not path.startswith("/"):
        yield _relative(key, path)


def _several(facts: Facts, log: str) -> Iterator[Danger]:
    directories, read_only = log_directories(log), read_only_directories(facts.text(STORE, _READ_ONLY))
    if not directories:
        yield Danger((_LOG,), f"{_LOG} = {shown(log)} names no directory: {_NO_PUTS}", _GIVE_ONE)
    elif not set(directories) - set(read_only):
        what = f"{_READ_ONLY} names each directory of {_LOG}: the broker can make no segment, and puts fail"
        yield Danger((_READ_ONLY, _LOG), what, f"add a directory to {_LOG}")
    elif "" in directories:
        what = f"{_LOG} = {shown(log)} has an empty path before a comma: the broker makes some of its segments in /"
        yield Danger((_LOG,), what, f"remove that comma from {_LOG}")
    if "\0" in log:
        what = f"{_LOG} contains a NUL character: the broker can make no segment in that directory, and puts fail"
        yield Danger((_LOG,), what, _NO_NUL)
    for key, paths in ((_LOG, directories), (_READ_ONLY, read_only)):
        wrong = next((path for path in paths if path and _meant(path) != path), None)
        if wrong is None:
            relative = next((path for path in paths if path and not path.startswith("/")), None)
            if relative is not None:
                yield _relative(key, relative)
            continue
        if as_meant(wrong) != wrong:
            yield _foreign(key, wrong)
            continue
        outcome = "does not load the segments there" + ("" if key == _READ_ONLY else ", and makes new ones elsewhere")
        what = f"{key}: {shown(wrong)} is not the directory {shown(_meant(wrong))}: the broker {outcome}"
        yield Danger((key,), what, "write paths separated by commas, without blanks and comments")


def _relative(key: str, path: str) -> Danger:
    """Source: java.util.Properties, MixAll#properties2Object: neither quotes nor variables mean anything to them."""
    what = (
        f"{key}: {shown(path)} does not begin with /: the broker makes its files below the directory that it is "
        "started in, and takes quotes, ~ and variables as parts of the name"
    )
    return Danger((key,), what, f"set {key} to a path that begins with /, without quotes")


def _foreign(key: str, path: str) -> Danger:
    what = f"a broker reads {key} = {shown(path)} as ISO-8859-1, not as UTF-8, and makes its files elsewhere"
    return Danger((key,), what, "use \\u escapes, or a path of ASCII characters alone")


def _meant(path: str) -> str:
    """The path without a comment after it and without blanks around it, in UTF-8."""
    comment = COMMENT.search(path)
    return as_meant(path if comment is None else path[: comment.start()]).strip()
