"""Helpers that several test folders share, one topic per file."""
