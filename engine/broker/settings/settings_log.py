"""What the daemon's log says of the properties file that it was started with."""

from __future__ import annotations

import dataclasses
import logging

from engine.broker.settings.broker_settings import KEYS
from engine.broker_conf.all_keys import all_keys
from engine.broker_conf.replication import KEYS as REPLICATION
from engine.broker_conf.report import Judgement, read_conf
from engine.config import StoreConfig, apache_key
from engine.files.disk import Disk
from engine.inspect.store.newer import KEYS as NEWER


def tell_settings(file: str, log: logging.Logger) -> None:
    """Each line that is not in force as it stands, what is dangerous, and keys of Apache's that are not ours.

    Each has a `why` of its own: the log lets lines of one text and one `why` pass once a second.

    Raises:
        StorageError: the file can't be read.
    """
    report = read_conf(Disk().read_file(file))
    ours = {apache_key(field.name) for field in dataclasses.fields(StoreConfig)} | KEYS | NEWER
    not_apaches = ours - all_keys().keys()  # a broker takes them from its JVM, and we from the file
    for verdict in report.verdicts:
        if verdict.judgement is not Judgement.IN_FORCE and verdict.key not in not_apaches:
            why = f"line {verdict.line}, {verdict.key}: {verdict.text}"
            log.warning("setting not in force as written", extra={"file": file, "why": why})
    unused = {v.key for v in report.of(Judgement.IN_FORCE) if v.key not in ours}
    if unused:
        log.warning("ignored settings", extra={"file": file, "why": ", ".join(sorted(unused))})
    for danger in report.dangers:
        if danger.note or not REPLICATION.isdisjoint(danger.keys):
            continue  # the daemon knows its options, too, and tells of its replication port by itself
        log.warning("dangerous setting", extra={"file": file, "why": danger.what, "hint": danger.hint})
