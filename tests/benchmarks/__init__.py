"""Benchmarks: one command for each row of numbers that the design promises; see `python -m tests.benchmarks --help`."""
