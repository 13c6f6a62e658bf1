"""Pausepoint and other engines, with the same work, in one run: ``make bench-peers``."""
