"""What Pausepoint costs, as a ratio to plain SQLite on the same disk in the same run. See docs/benchmarks.md."""
