"""Typed answers of language models, by way of pydantic-ai. Agents call `ask`.

Environment variables select the model; the README in the folder above lists them. pydantic-ai takes seconds to import,
so it is imported when a model is asked for the first time.
"""

from pausepoint.apps.model.answers import EXCHANGES, OUTAGE, ask, in_use
from pausepoint.apps.model.errors import (
    AnswerInvalid,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    SettingsRefused,
    TurnsUsed,
)
from pausepoint.apps.model.settings import Settings, settings
from pausepoint.apps.model.tls import tls

__all__ = [
    "EXCHANGES",
    "OUTAGE",
    "AnswerInvalid",
    "ModelError",
    "ModelRefused",
    "ModelUnavailable",
    "Settings",
    "SettingsRefused",
    "TurnsUsed",
    "ask",
    "in_use",
    "settings",
    "tls",
]
