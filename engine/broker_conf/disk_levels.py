"""How full a disk may be: the levels of retention, each defined once, as disk usage in per cent."""

from __future__ import annotations

CLEAN_FORCIBLY = 85
"""Above it segments of any age are deleted. Default of the JVM's property rocketmq.broker.diskSpaceCleanForciblyRatio.

Source: DefaultMessageStore.CleanCommitLogService."""

WARNING_LEVEL = 90
"""Above it puts are refused. Default of rocketmq.broker.diskSpaceWarningLevelRatio. Source: the same."""

RATIO_LIMITS = (10, 95)
"""What a broker limits diskMaxUsedSpaceRatio to. Source: MessageStoreConfig#getDiskMaxUsedSpaceRatio."""


def max_used(setting: int) -> int:
    """What a broker makes of diskMaxUsedSpaceRatio: above it expired segments go at any hour."""
    low, high = RATIO_LIMITS
    return min(max(setting, low), high)
