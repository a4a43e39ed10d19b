"""The jobs of `rstore pipeline`, a module each: frozen options, and `run(spark, stores, options)` → `JobResult`.

What a job asks of Spark is to run a function over splits (tasks.py). Rows never reach the driver, only what is said of
a split or a queue.
"""
