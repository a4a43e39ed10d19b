"""Queues and index built anew aside, and swapped in."""
