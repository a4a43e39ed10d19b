"""doctor's part on the broker's properties file: what a broker makes of each line (engine.broker_conf), as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker_conf.all_keys import is_default
from engine.broker_conf.report import Judgement, read_conf
from engine.errors import InvalidArgument, NotAFile
from engine.inspect.finding import Findings
from engine.inspect.finding_codes import Code, Fix, Severity

if TYPE_CHECKING:
    from engine.broker_conf.report import Report
    from engine.files.disk import Disk

CONF_CODES: dict[str, Code] = {
    "conf-start": Code(Severity.ERROR, "a broker does not start with this configuration", "change the file", Fix.BRING),
    "conf-danger": Code(Severity.WARNING, "a dangerous setting in the broker's configuration", "change the file"),
    "conf-open": Code(
        Severity.INFO,
        "whoever reaches the replication port of Apache's broker gets the log, though an ACL is enabled",
        "let only slaves connect to it",
        Fix.NOTHING,
    ),
    "conf-misread": Code(
        Severity.WARNING,
        "a broker reads this value as another one",
        "a value ends at the end of its line: put comments on lines of their own, and no blanks after a value",
    ),
    "conf-unknown": Code(Severity.WARNING, "a key that no broker knows", "check its spelling; keys are case-sensitive"),
    "conf-newer": Code(
        Severity.INFO,
        "a key that RocketMQ 5 reads, and a broker of 4.9.8 does not",
        "leave it in the file of a broker of RocketMQ 5",
        Fix.NOTHING,
    ),
    "conf-ignored": Code(Severity.INFO, "a key that a broker ignores", "remove the line", Fix.NOTHING),
}
OF_THE_WHOLE_FILE = ("conf-start", "conf-danger", "conf-open")
"""Those that are of no single line."""
_BY_JUDGEMENT = {
    Judgement.MISREAD: "conf-misread",
    Judgement.UNKNOWN: "conf-unknown",
    Judgement.IGNORED: "conf-ignored",
    Judgement.NEWER: "conf-newer",
}


def look_at_conf(disk: Disk, path: str, findings: Findings) -> Report:
    """What a broker makes of the file; what is to be known of it goes to `findings`.

    Raises:
        StorageError: it can't be read. InvalidArgument: as `read_conf`.
    """
    if disk.is_dir(path):
        raise NotAFile("a directory, not a file", path=path, hint="name the broker's properties file")
    try:
        report = read_conf(disk.read_file(path))
    except InvalidArgument as error:
        raise InvalidArgument(error.message, path=path, hint=error.hint) from None
    for danger in report.dangers:
        code = "conf-start" if danger.stops else "conf-open" if danger.note else "conf-danger"
        findings.add(
            code, danger.what, f"{path}: {', '.join(danger.keys)}".removesuffix(": "), danger.what, hint=danger.hint
        )
    for verdict in report.verdicts:
        if verdict.judgement in _BY_JUDGEMENT:
            where = f"{path}:{verdict.line}"
            findings.add(_BY_JUDGEMENT[verdict.judgement], where, where, f"{verdict.name}: {verdict.text}")
    return report


def unread_keys(report: Report) -> frozenset[str]:
    """Keys that are set, but whose value a broker can't read and has its default for."""
    return frozenset(v.key for v in report.of(Judgement.MISREAD) if is_default(v.key, v.in_force))
