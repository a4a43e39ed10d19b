"""Recovery: where the log ends, what queues and index are to be, and the plan that is applied."""
