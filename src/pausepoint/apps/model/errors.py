"""The errors of a language model."""

from __future__ import annotations

from pausepoint import PausepointError


class ModelError(PausepointError):
    """A language model gave no usable answer."""


class ModelUnavailable(ModelError, ConnectionError):
    """The model is busy, too slow or unreachable. Retry later; ``retry_after`` is the wait in seconds, if known."""

    retry_after: float | None


class ModelRefused(ModelError):
    """The model declines to answer. A retry does not help."""

    retryable = False


class AnswerInvalid(ModelError):
    """Several answers in a row did not match the requested type."""

    retryable = False


class TurnsUsed(ModelError):
    """A model that works with tools has not finished within its turns."""

    retryable = False


class SettingsRefused(ModelError):
    """The service rejects the settings or the account, or a setting is invalid."""

    retryable = False
