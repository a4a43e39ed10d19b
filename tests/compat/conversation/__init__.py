"""One script of requests, spoken to Apache's broker and to ours; and what differs between the answers.

`talk.py` speaks and writes down each answer, with what can't be the same (ports, times, places in the log) made the
same by `normal.py`; the other modules but `table.py` and `explained.py` are the script, by subject.
"""
