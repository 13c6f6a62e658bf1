"""The end of a session's data: removal by hand or by expiry, redaction, sweeping, and the proof that all is intact."""

from __future__ import annotations

from holdfast.reading import Reading


class Retention(Reading):
    """The verbs that take data away, and the one that looks whether any is damaged."""
