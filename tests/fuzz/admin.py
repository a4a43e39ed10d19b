"""Admin frames: what judges a request before any handler has it, and the settings that a request may carry.

Each frame's requests are signed anew by an account, so that all of the judgement is reached; a denial is a verdict.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass

import orjson

from engine.broker.acl.accounts import Account
from engine.broker.acl.files import AclFiles, AclTable
from engine.broker.acl.guard import Denied, Guard
from engine.broker.acl.perms import Perm
from engine.broker.acl.strict import UnknownMessage
from engine.broker.handlers.admin_broker import properties_of
from engine.broker.net.allow import parse_allow_list
from engine.broker.requests.answers import Answer
from engine.broker.requests.json_body import NotRead
from engine.broker.requests.table import NAMES, RIGHTS
from engine.broker.settings.broker_settings import BrokerSettings, demand_readable
from engine.broker.settings.current_settings import CurrentSettings
from engine.broker.settings.name_config import NameConfig
from engine.broker.settings.protected import refusal
from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.wire import frames
from engine.wire.codes import RequestCode
from engine.wire.command import RemotingCommand, SerializeType
from engine.wire.signing import signature
from tests.fuzz.requests import sound

_SECRET = b"12345678"
_HERE = bytes((10, 1, 2, 3))
SHORT_MAX = 32_767
"""The highest code that a header in ROCKETMQ's serialisation can have: pops have higher ones."""
_CONFIG = {
    RequestCode.UPDATE_BROKER_CONFIG: b"fileReservedTime=72\nflushDiskType=SYNC_FLUSH\nstorePathCommitLog=/etc\n",
    RequestCode.UPDATE_NAMESRV_CONFIG: b"serverWorkerThreads=8\norderMessageEnable=true\nx = 10.0.0.0/8, ::1\n",
}


@dataclass(frozen=True, slots=True)
class _Judges:
    strict: Guard
    apaches: Guard
    log: logging.Logger


def _topic_of(offset: int) -> str | None:
    """Some offsets have a message, some have none, and of some nobody can tell."""
    if offset % 3 == 2:
        raise UnknownMessage
    return "Fuzzed" if offset % 3 else None


@functools.cache
def _judges() -> _Judges:
    log = logging.getLogger("tests.fuzz.admin")
    log.setLevel(logging.CRITICAL)
    files = AclFiles(Disk(), "plain_acl.yml", "acl", lambda: 1, log)
    rights = {"Fuzzed": Perm.PUB | Perm.SUB, "%RETRY%G": Perm.SUB}
    account = Account("account", _SECRET, default_topic=Perm.DENY, default_group=Perm.SUB, rights=rights)
    files.table = AclTable({"account": account, "operator": Account("operator", _SECRET, admin=True)})
    return _Judges(Guard(files, log, topic_of=_topic_of), Guard(files, log, strict=False, topic_of=_topic_of), log)


def judge(data: bytes) -> object:
    """Verdicts on every request in some frames. aclStrict may only refuse more. Raises FormatError: no frames."""
    return [_judge(request) for request in frames.FrameReader().feed(data)]


def _judge(request: RemotingCommand) -> object:
    judges, verdicts = _judges(), []
    for key in ("account", "operator"):
        ext = {**request.fields, "AccessKey": key}
        ext["Signature"] = signature(ext, request.body, _SECRET)
        signed = request._replace(ext=ext)
        strict, apaches = _verdict(judges.strict, signed), _verdict(judges.apaches, signed)
        assert strict is not None or apaches is None, "aclStrict allows what is refused without it"
        verdicts.append(strict)
    changes = properties_of(request) if request.code in _CONFIG else None
    if changes is not None and refusal(changes) is None:
        try:
            demand_readable(changes)
            NameConfig(CurrentSettings(BrokerSettings()), "kv", judges.log).update(changes)
            for key, text in changes.items():
                parse_allow_list(key, text)
        except InvalidArgument as error:
            verdicts.append(error.message)
    return verdicts


def _verdict(guard: Guard, request: RemotingCommand) -> str | None:
    try:
        try:
            guard.check(_HERE, request)
        except NotRead as large:
            guard.check(_HERE, large.work())
    except (Denied, Answer) as refused:
        return str(refused)
    return None


def seeds() -> tuple[bytes, ...]:
    """A sound request of each code that needs a right, in both serialisations by turns where both can carry it."""
    made = []
    asked = sound()
    for number, code in enumerate(sorted({*RIGHTS, *NAMES.rights})):
        fields, body = asked[code]
        kind = SerializeType(number % 2) if code <= SHORT_MAX else SerializeType.JSON
        content = _CONFIG.get(code) or (body if isinstance(body, bytes) else orjson.dumps(body))
        made.append(b"".join(frames.encode(RemotingCommand(code, 1, 0, None, dict(fields), content, serialize=kind))))
    return tuple(made)
