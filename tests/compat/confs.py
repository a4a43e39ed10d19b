"""Seeded properties files for a broker: real keys and none, values that Java reads, half reads, or does not."""

from __future__ import annotations

from random import Random

from engine.broker_conf.all_keys import all_keys
from engine.broker_conf.not_keys import NOT_KEYS, STARTUP_KEYS
from engine.broker_conf.release_keys import keys_of_release
from engine.broker_conf.values import ValueKind

_INTEGERS = (
    *("0", "1", "-1", "+7", "007", "10", "95", "96", "86", "4096", "20001", "1048576", "2147483647", "2147483648"),
    *("-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "99999999999999999999999", ""),
    *("1_000", "0x10", "1e3", "1.0", "5L", "1024*1024*1024", "+", "-", "--1", "\\u0665\\u0660", "\\uff11\\uff12"),
    *("12 ", "12\\t", "12 # twelve", "12#", "# 12", "1 2", "\\u0031\\u0032", "12\\", "1\\\n2", "1\\\r\n   2", "twelve"),
    *("0" * 200 + "9", "9" * 300, "\\ud835\\udfd8"),
)
_BOOLEANS = (
    *("true", "false", "TRUE", "True", "tRuE", "yes", "1", "on", "", "true ", "true\\t", "true # on", "false # off"),
    *("\\u0074rue", "t\\\n rue", "wahr", "ja", "truee", "\\ttrue"),
)
_TEXTS = (
    *(
        "plain",
        "",
        "with blanks at its end  ",
        "a # comment",
        "a#b",
        "a=b:c",
        "\\u00fc",
        "\u8def\u5f84",
        "\\\\back\\\\slash",
    ),
    *(
        "/data/store",
        "/data/store # here",
        "/a,/b",
        "/a, /b",
        "\\ leading",
        "tab\\tin it",
        "\\q\\x",
        "one\\\n   two",
        "\u00fc",
    ),
    *(
        "\\ud83d\\ude00",
        "127.0.0.1:9876",
        "127.0.0.1:9876;localhost:9876",
        "localhost",
        "a:70000",
        "[::1]:9876",
        ";",
        "x:1;",
    ),
)
_HOURS = (
    *("04", "4", "04;16", "04;", ";04", "", ";", ";;", "04; 16", "04 ", "04;x;16", "24", "-1", "99", "04 # night", "x"),
    *("00;01;02;23", "04,16", "+4", "\\u0664", "16;04;16", "04;;16", "23;24;25;y"),
)
_ENUMS = {
    ValueKind.ROLE: (
        "ASYNC_MASTER",
        "SYNC_MASTER",
        "SLAVE",
        "slave",
        "SLAVE ",
        "SLAVE # the second",
        "MASTER",
        "",
        "Slave",
    ),
    ValueKind.FLUSH: (
        "SYNC_FLUSH",
        "ASYNC_FLUSH",
        "sync_flush",
        "SYNC_FLUSH ",
        "SYNC_FLUSH # slow",
        "SYNC",
        "",
        "async",
    ),
}
_SEPARATORS = ("=", " = ", ":", " : ", " ", "\t", "=  ", " =\\\n   ", "\f=\f", "==", " \\\n = ")
_BETWEEN = (
    *(
        "# a comment",
        "! another",
        "",
        "   ",
        "# with a backslash at its end \\",
        "\u6ce8\u91ca=1",
        "# \u6ce8\u91ca",
        "\f",
    ),
    *(
        "novalue",
        "=nokey",
        ":",
        "   # indented",
        "\\#key=1",
        "a\\ b=1",
        "a\\=b=2",
        "\\\n# no comment = 3",
        "\x00=1",
        "k=\x00",
    ),
    *("last=one\\", "\\"),
)
_BROKEN = ("a=\\u12", "b=\\uxyzw", "\\u=1", "c=\\u004", "# fine \\u12")
_ENDS = ("\n", "\r\n", "\r")


def conf(seed: int) -> bytes:
    """The file of that number."""
    rng = Random(f"conf {seed}")
    keys = sorted(all_keys())
    others = [*NOT_KEYS, *STARTUP_KEYS, *sorted(keys_of_release("5.3.3") - all_keys().keys())[::12]]
    lines: list[str] = []
    for _ in range(rng.randint(0, 60)):
        roll = rng.random()
        if roll < 0.15:
            lines.append(rng.choice(_BETWEEN))
        elif roll < 0.16:
            lines.append(rng.choice(_BROKEN))
        else:
            name = rng.choice(keys if roll < 0.9 else others)
            value = _value(rng, name)
            if roll > 0.97:
                name = rng.choice(
                    (name.lower(), name.capitalize(), name + "s", " " + name, name + "\\ ", "rocketmq." + name)
                )
            lines.append(rng.choice(("", "", "", "  ", "\t")) + name + rng.choice(_SEPARATORS[: 1 + seed % 11]) + value)
    if rng.random() < 0.5:
        lines.append("deleteWhen=" + rng.choice(_HOURS))
    if rng.random() < 0.3:
        lines.append(rng.choice(lines) if lines else "")
    end = rng.choice(_ENDS)
    text = end.join(lines) + rng.choice((end, ""))
    return rng.choice((b"", b"", b"", b"\xef\xbb\xbf")) + text.encode(rng.choice(("utf-8", "utf-8", "gb18030")))


def _value(rng: Random, name: str) -> str:
    kind = all_keys()[name][0].kind if name in all_keys() else ValueKind.STRING
    if name == "deleteWhen":
        return rng.choice(_HOURS)
    if kind in (ValueKind.INT, ValueKind.LONG):
        return rng.choice(_INTEGERS) if rng.random() < 0.7 else str(rng.randint(-(1 << 40), 1 << 40))
    if kind is ValueKind.BOOLEAN:
        return rng.choice(_BOOLEANS)
    if kind is ValueKind.STRING:
        return rng.choice(_TEXTS)
    return rng.choice(_ENUMS[kind])
