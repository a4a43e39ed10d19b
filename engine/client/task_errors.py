"""What went wrong in tasks that ran beside each other."""

from __future__ import annotations


def first_error(problems: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first one, out of whatever groups it is in."""
    one = problems.exceptions[0]
    return first_error(one) if isinstance(one, BaseExceptionGroup) else one
