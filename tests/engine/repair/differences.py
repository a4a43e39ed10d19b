"""Where recovery ends otherwise than Apache's on the damaged stores, case by case, with the rule of RECOVERY.md.

Keys are the ids of the two corpora: v… in ../shared/golden, f… in fixtures/. Any other case ends as with Apache.
"""

from __future__ import annotations

REFUSED = {
    "v112": "no commit log: refused without --yes-the-log-is-gone",
    "v114": "no commit log: refused without --yes-the-log-is-gone",
    "f044": "no commit log: refused without --yes-the-log-is-gone",
}
"""Recovery refuses, nothing is changed."""

OPENED = {
    "v076": "rule 15: Apache runs out of memory",
    "v111": "rule 9: Apache hangs",
    "v115": "rule 13: an empty file stops Apache's start",
    "v116": "rule 13: an empty file stops Apache's start",
    "v117": "rule 13: a segment of another size stops Apache's start",
    "v118": "rule 13: a segment of another size stops Apache's start",
    "v119": "rule 13: a segment of another size stops Apache's start",
    "v120": "rule 13: an empty file stops Apache's start",
    "v122": "rule 13: an empty file stops Apache's start",
    "v123": "rule 13: a stray file stops Apache's start",
    "v124": "rule 13: a stray file stops Apache's start",
    "v126": "rule 13: a stray directory stops Apache's start",
    "v151": "rule 13: an empty file stops Apache's start",
    "v184": "rule 9: Apache hangs",
    "f034": "rule 15: Apache runs out of memory",
    "f042": "rule 9: Apache hangs",
    "f045": "rule 13: an empty file stops Apache's start",
    "f046": "rule 13: a stray file stops Apache's start",
    "f090": "rule 13: a segment of another size stops Apache's start",
    "f091": "rule 13: a segment of another size stops Apache's start",
    "f094": "rule 9: Apache hangs",
}
"""Apache doesn't open the store at all; we do."""

QUEUES = {
    "v027": "rule 17: the new queue's min offset",
    "v051": "rules 5, 9, 16: dispatch goes on behind the bad record, every unit at its own queue offset",
    "v052": "rules 5, 9, 16: dispatch goes on behind the bad record, every unit at its own queue offset",
    "v053": "rules 5, 9, 16: dispatch goes on behind the bad record, every unit at its own queue offset",
    "v054": "rules 5, 9, 16: dispatch goes on behind the bad record, every unit at its own queue offset",
    "v055": "rule 17: the new queue's min offset",
    "v057": "rule 3: the unit names the place, not the damaged physicalOffset",
    "v064": "rule 17: the new queue's min offset",
    "v113": "rule 17: the min offset is the first real unit",
    "v130": "rule 5: a unit that doesn't match the log",
    "v131": "rule 5: a unit that doesn't match the log",
    "v132": "rule 5: the last unit points past the log's end",
    "v134": "rule 5: the lost queue is rebuilt whole",
    "v135": "rule 5: the lost queues are rebuilt whole",
    "v136": "rules 5, 6: the lost queues are rebuilt whole",
    "v138": "rule 5: the lost units are rebuilt",
    "v139": "rule 5: the lost units are rebuilt",
    "v140": "rule 5: the lost units are rebuilt",
    "v143": "rule 5: the lost unit is rebuilt",
    "v145": "rule 5: the lost queue is rebuilt",
    "v147": "rule 5: the lost file is rebuilt",
    "v148": "rule 5: the lost queue is rebuilt",
    "v149": "rule 5: the lost file is rebuilt",
    "v150": "rule 5: the lost file is rebuilt",
    "v152": "rule 5: the lost queue is rebuilt whole",
    "v153": "rule 5: the lost files are rebuilt",
    "v177": "rule 17: the new queue's min offset",
    "v178": "rule 6: delivery times",
    "v179": "rule 6: delivery times",
    "v180": "rule 6: delivery times",
    "v186": "rules 5, 6, 9: the lost queues are rebuilt around the lost page",
    "v192": "rule 5: the lost queues are rebuilt",
    "v193": "rule 5: the lost file is rebuilt",
    "f008": "rule 17: the new queue's min offset",
    "f014": "rule 17: the new queue's min offset",
    "f021": "rule 5: the lost units are rebuilt whole",
    "f022": "rule 5: the lost file is rebuilt whole",
    "f023": "rule 5: the lost queue is rebuilt whole",
    "f024": "rules 5, 6: the lost queues are rebuilt whole",
    "f054": "rule 6: delivery times",
    "f055": "rules 5, 6: the lost queues are rebuilt whole",
    "f076": "rule 5: the lost unit is rebuilt",
    "f077": "rule 5: the lost units are rebuilt",
    "f078": "rule 5: the lost file is rebuilt",
    "f079": "rule 5: the lost queue is rebuilt",
    "f081": "rule 5: the lost units are rebuilt",
    "f082": "rule 5: a unit that doesn't match the log",
    "f092": "rule 6: delivery times",
    "f098": "the extension's old units stay, new ones go behind them; Apache writes over the old ones",
    "f103": "rule 5: the lost queue is rebuilt",
    "f097": "units whose extension is gone are made anew: Apache's next abnormal start dies of them",
    "f099": "units whose extension is gone are made anew: Apache's next abnormal start dies of them",
}
"""The log ends as with Apache; some queues are better."""

LOG_END = {
    "v079": "rule 14: a blank record that does not end at its segment's end is damage, and --cut ends the log there",
    "f037": "rule 14: a blank record that does not end at its segment's end is damage, and --cut ends the log there",
}
"""The log ends elsewhere."""

OUTSIDE_CRC = "the damaged field is outside of the record's CRC: nobody can tell record from unit or key; both stay"
BODY_SOUND = (
    "properties were zeroed, which no CRC covers: the body is sound, so the message stays and its record is told"
)
BEFORE_START = "damage before recovery's start stays in the log"

LEFT: dict[str, tuple[tuple[str, ...], str]] = {
    "f004": (("record-suspect",), BODY_SOUND),
    "f014": (("unit-foreign", "index-key", "index-missing"), OUTSIDE_CRC),
    "f015": (("unit-tags",), OUTSIDE_CRC),
    "f016": (("log-damage",), BEFORE_START),
    "f057": (("not-closed", "log-damage"), BEFORE_START),
    "f067": (("index-time",), OUTSIDE_CRC),
    "f070": (("unit-foreign", "index-key", "index-missing"), OUTSIDE_CRC),
    "f071": (("unit-tags",), OUTSIDE_CRC),
    "f072": (("log-damage",), BEFORE_START),
    "f075": (("log-damage",), BEFORE_START),
}
"""What `check` finds in the recovered store all the same: codes, and why recovery leaves it so."""
