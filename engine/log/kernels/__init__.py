"""Kernels of the log, compiled by numba: fast lanes before the plain modules, and what they are made of."""
