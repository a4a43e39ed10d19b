"""Damaged pieces of a store's log, taken from copies of it: found, fetched, proved, written."""
