"""`rstore bench`: ours against Apache RocketMQ 4.9.8 and against what the machine can do, on the same stores.

A job is one thing that a user waits for (a recovery, a put, a get). Each measure of it is a process of its own on a
store prepared afresh, ours and Apache's in turn (A B A B), so that what else the machine does falls on both; a figure
is the median of the rounds. `run` is the whole, `workload` makes the logs, `stores` the stores around them, `jobs` says
what is measured and how much is asked for, `work` holds our side of each job, `java/` Apache's, `report` says what came
out.
"""
