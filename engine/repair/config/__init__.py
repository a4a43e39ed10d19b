"""The files of config/: what a broker reads of them, and how they are made again from log, queues and other sources."""
