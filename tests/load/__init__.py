"""Load on a daemon: clients in processes of their own, and what they have seen."""
