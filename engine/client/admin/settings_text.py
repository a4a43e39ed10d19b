"""A setting as brokers and name servers take it over: a line of a Java properties file. No I/O."""

from __future__ import annotations

from engine.errors import InvalidArgument


def settings_body(key: str, value: str) -> bytes:
    """The body of a request that changes one setting.

    Raises:
        InvalidArgument: the key or the value is not what a line of a properties file can hold.
    """
    if not key or not key.isidentifier():
        raise InvalidArgument(f"not a setting: {key!r}")
    if any(letter in "\r\n" for letter in value):
        raise InvalidArgument(f"the value of {key} has several lines")
    import javaproperties

    return javaproperties.dumps({key: value}, timestamp=False).encode("ascii")
