"""Going back: edit the state of a parked session, rewind it to an earlier visit, fork a new one from it."""

from __future__ import annotations

from holdfast.reading import Reading


class Travel(Reading):
    """The verbs that move a session along its own history."""
