"""One or many stores as a data pipeline on Spark: the engine's scanner on every executor.

The data source `rstore`'s users read with Spark, and the jobs of `rstore pipeline`, share three things: which stores
are meant (stores.py), how their logs are cut into splits that can be read apart (splits.py), and the Spark session
(spark.py). pyspark and pyarrow are imported in this package alone, and only where they are used.
"""
