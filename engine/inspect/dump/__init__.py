"""What a store holds, row by row: the log, queues, index, config, and what repairs saved."""
