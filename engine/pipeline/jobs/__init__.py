"""The jobs of the pipeline: each a module with options and `run`."""
