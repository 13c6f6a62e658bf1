"""The number of Hypothesis examples for a slow property."""

from __future__ import annotations

from hypothesis import settings

USUAL_PROFILE = 100
"""The number of examples in Hypothesis's default profile and in the suite's profile."""


def examples(usual: int) -> int:
    """Return ``usual``, or the profile's number if it is larger (``--hypothesis-profile=explore``)."""
    wanted = settings().max_examples
    return wanted if wanted > USUAL_PROFILE else usual
