"""What a broker does when it starts, as a table by release: the one place that knows releases apart.

Each field is a fact of the release, read in its sources (tags rocketmq-all-4.9.8 to 5.3.3; the source jars of 5.4.0 and
5.5.0); each is compared with its own message store on hundreds of damaged stores (tests/compat/test_starts5.py). What
reads the table (`apache_start`, `queue_start`, `plan_start`) asks for facts and never for a release.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import InvalidArgument

if TYPE_CHECKING:
    from engine.inspect.store.release import Release


class NormalStart(enum.Enum):
    """From which segment a normal recovery (no abort file) reads."""

    THIRD_LAST = "the third last file"
    QUEUES_END = "the file that holds the queues' greatest physical offset"
    QUEUES_END_JUDGED = "the last file whose first record is sound and lies at or before the queues' greatest offset"


class NormalDispatch(enum.Enum):
    """What a normal start dispatches again: builds queue units and index entries of."""

    FROM_QUEUES_END = "all from the queues' greatest physical offset on"
    NOTHING = "nothing"
    AFTER_QUEUES_END = "what recovery reads and begins after the queues' greatest physical offset"


class AbnormalStart(enum.Enum):
    """Which segment an abnormal recovery (abort file) reads from: the last one whose first record is old enough."""

    CHECKPOINT_TIMES = "stored at or before the checkpoint's time, less 3 s"
    CHECKPOINT_TIMES_JUDGED = "sound, and stored at or before the checkpoint's time, less 3 s"
    CHECKPOINT_OFFSET_JUDGED = "sound, and at or before the checkpoint's physical offset of the queues"


@dataclass(frozen=True, slots=True)
class StartRules:
    """What a start of one release does.

    Attributes:
        release: such as 5.3.3.
        reads_v2: records with a topic length of 2 bytes are records. Source: CommitLog#checkMessageAndReturnSize.
        bounds_sizes: a total size beyond its file ends the log; else one beyond a Java array ends the process
            (OutOfMemoryError), and a blank record may claim any length. Source: the same.
        checks_property_crc: forceVerifyPropCRC is known. Source: the same.
        removes_empty_last: a file of 0 bytes that is the last of the log or of a queue is deleted; else it stops the
            start. Source: MappedFileQueue#doLoad.
        passes_directories: a directory among the files of log or queue is passed over; else it stops the start.
        normal_start, normal_dispatch: CommitLog#recoverNormally, DefaultMessageStore#start.
        abnormal_start: CommitLog#isMappedFileMatchedRecover.
        most_files: files that recovery looks back at most for its start (commitLogRecoverMaxNum); None: all.
        cuts_after_dispatch: queues are cut by what they hold after recovery has dispatched, not before it. Source:
            CommitLog#recoverAbnormally, ConsumeQueueStore#truncateDirty.
        stops_at_empty_queue_file: the start fails where a queue's last file holds no unit and one before it does.
            Source: ConsumeQueue#correctMinOffset.
        one_queue_type: the start fails where a topic's queues are of another type than topics.json says. Source:
            ConsumeQueueStore#queueTypeShouldBe.
        confirm_limits: under a controller, abnormal recovery dispatches up to the checkpoint's confirmPhyOffset.
        tags_in_index: tags are keys of the index, too. Source: IndexService#buildIndex.
    """

    release: str
    reads_v2: bool = True
    bounds_sizes: bool = True
    checks_property_crc: bool = True
    removes_empty_last: bool = True
    passes_directories: bool = True
    normal_start: NormalStart = NormalStart.THIRD_LAST
    normal_dispatch: NormalDispatch = NormalDispatch.NOTHING
    abnormal_start: AbnormalStart = AbnormalStart.CHECKPOINT_TIMES
    most_files: int | None = None
    cuts_after_dispatch: bool = False
    stops_at_empty_queue_file: bool = True
    one_queue_type: bool = True
    confirm_limits: bool = True
    tags_in_index: bool = False


V4 = StartRules(
    "4.9.8",
    reads_v2=False,
    bounds_sizes=False,
    checks_property_crc=False,
    removes_empty_last=False,
    passes_directories=False,
    normal_dispatch=NormalDispatch.FROM_QUEUES_END,
    stops_at_empty_queue_file=False,
    one_queue_type=False,
    confirm_limits=False,
)
_V5_3_1 = StartRules("5.3.1", bounds_sizes=False)
_V5_3_3 = StartRules("5.3.3", normal_start=NormalStart.QUEUES_END, normal_dispatch=NormalDispatch.AFTER_QUEUES_END)
_V5_4_0 = StartRules(
    "5.4.0",
    normal_start=NormalStart.QUEUES_END_JUDGED,
    normal_dispatch=NormalDispatch.AFTER_QUEUES_END,
    abnormal_start=AbnormalStart.CHECKPOINT_TIMES_JUDGED,
    most_files=10,
    cuts_after_dispatch=True,
    tags_in_index=True,
)
_V5_5_0 = StartRules(
    "5.5.0",
    normal_start=NormalStart.QUEUES_END_JUDGED,
    normal_dispatch=NormalDispatch.AFTER_QUEUES_END,
    abnormal_start=AbnormalStart.CHECKPOINT_OFFSET_JUDGED,
    most_files=10,
    cuts_after_dispatch=True,
    stops_at_empty_queue_file=False,
    tags_in_index=True,
)
TABLE = (V4, _V5_3_1, _V5_3_3, _V5_4_0, _V5_5_0)
"""By release. The releases between two of them are not in it: 5.2.0 starts as 5.3.1, 5.3.2 as 5.3.3."""
_LATEST = (_V5_3_3, _V5_4_0, _V5_5_0)
"""The latest release of each series of RocketMQ 5 that leaves signs of its own, of the first: of all before them."""
RELEASES = tuple(rules.release for rules in TABLE)


def rules_of(version: str) -> StartRules:
    """The rules of a release by its name, `5.3.3`, or by a shorter one, `5.3`, which stands for the latest of them.

    Raises:
        InvalidArgument: the table has no such release.
    """
    for rules in reversed(TABLE):
        if rules.release == version or rules.release.startswith(f"{version}."):
            return rules
    raise InvalidArgument(f"no rules are known of RocketMQ {version}: known are {', '.join(RELEASES)}")


def rules_for(release: Release | None) -> StartRules:
    """The rules by which a store is planned that nobody named a release for: 4.9.8's where nothing is RocketMQ 5's.

    Signs of 5.0 to 5.3 tell only that no sign of 5.4 is there, so those of the latest release before it are taken.
    """
    if release is None:
        return V4
    least = _series(release.least)
    return next((rules for rules in _LATEST if _series(rules.release) >= least), TABLE[-1])


def _series(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))
