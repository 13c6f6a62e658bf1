"""Benchmarks: the cost of Pausepoint as a ratio to plain SQLite on the same disk. See docs/benchmarks.md."""
