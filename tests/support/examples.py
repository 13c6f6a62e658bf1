"""How many examples a costly property gets."""

from __future__ import annotations

from hypothesis import settings

USUAL_PROFILE = 100
"""What Hypothesis gives a property, and the suite's profile with it."""


def examples(usual: int) -> int:
    """``usual`` in the suite; as many as the profile says when somebody searches (``--hypothesis-profile=explore``)."""
    wanted = settings().max_examples
    return wanted if wanted > USUAL_PROFILE else usual
