"""Tests of the page in a real browser. A package, because the browser must end before tests of other folders begin."""
