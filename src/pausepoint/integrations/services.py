"""Services that deliver messages: mail, chats, webhooks and all others that apprise knows.

The address of a service contains passwords and tokens. It is never printed, logged or stored: people see the service's
name and the position of the address, and the store gets a hash.
"""

from __future__ import annotations

import hashlib
import logging
import re
import warnings
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from pausepoint.integrations.messages import Message
from pausepoint.name import NAME
from pausepoint.threads import in_thread

if TYPE_CHECKING:
    from apprise import NotifyBase

MISSING = (
    f"Notifications need the package apprise, which is not installed. Install it with pip install '{NAME}[notify]'."
)

READ_FOR = 15.0
"""Seconds to wait for a service's answer, unless its address says ``rto=``. A slow service may have accepted a message
whose answer came too late, and gets it again. That is why this is longer than the 4 seconds of apprise."""

_COST = {"n": 2**14, "r": 8, "p": 1, "dklen": 16}
"""A hash that is slow to compute: an address may contain a password that is easy to guess."""


class Service:
    """One address. ``number`` is its position in the command, beginning with 1."""

    def __init__(self, number: int, url: str, plugin: NotifyBase) -> None:
        self.number = number
        self.name = str(plugin.service_name)
        self.room = int(plugin.body_maxlen)
        self._url = url
        self._plugin = plugin

    def __str__(self) -> str:
        return f"{self.name} (URL {self.number})"

    def __repr__(self) -> str:
        return f"<{self}>"

    async def id(self, salt: bytes) -> str:
        """Return a hash that stands for the address in the store. The address cannot be computed from it."""
        found = await in_thread(hashlib.scrypt, self._url.encode(), salt=salt, **_COST)
        return found.hex()

    async def send(self, message: Message) -> str:
        """Send a message, and return why that failed; an empty string if the service has accepted the message."""
        return await in_thread(self._send, message)

    def _send(self, message: Message) -> str:
        from apprise import Apprise, NotifyFormat

        said: list[str] = []
        token = _said.set(said)
        try:
            _keep_secrets()
            sender = Apprise(asset=self._plugin.asset)
            sender.add(self._plugin)
            if sender.notify(title=message.title, body=message.body, body_format=NotifyFormat.TEXT):
                return ""
        except Exception as error:  # a service must not end the others, and the error's text may contain the address
            said.append(type(error).__name__)
        finally:
            _said.reset(token)
        return _reason(said)


def services(urls: Sequence[str]) -> list[Service]:
    """Return the services with these addresses, each once.

    Raises `ImportError` without apprise, and `ValueError` for an address that it does not accept. The message does not
    contain the address.
    """
    try:
        from apprise import Apprise, AppriseAsset
    except ImportError:
        raise ImportError(MISSING) from None
    _keep_secrets()
    asset = AppriseAsset(app_id="Pausepoint", app_desc="Pausepoint", secure_logging=True)
    found: dict[str, Service] = {}
    token = _said.set([])
    try:
        with warnings.catch_warnings():  # the first call imports all services, and some use deprecated modules
            warnings.simplefilter("ignore")
            for number, url in enumerate(urls, 1):
                plugin = Apprise.instantiate(url, asset=asset)
                if plugin is None:
                    raise ValueError(_refusal(number, url))
                if plugin.socket_read_timeout == type(plugin).socket_read_timeout:
                    plugin.socket_read_timeout = READ_FOR
                found.setdefault(url, Service(number, url, plugin))
    finally:
        _said.reset(token)
    if not found:
        raise ValueError("There is no address to send questions to. Give at least one, such as mailto://….")
    return list(found.values())


def _refusal(number: int, url: str) -> str:
    scheme = re.match(r"[a-z][a-z0-9]{1,15}(?=://)", url)
    named = f"URL {number}" if scheme is None else f"URL {number} ({scheme[0]}://…)"
    return (
        f"{named} is not an address that apprise accepts: the service is unknown, a part is missing, or the service"
        " needs a further package. Compare it with the list of services at https://appriseit.com/services/."
    )


# what apprise logs

_said: ContextVar[list[str] | None] = ContextVar("pausepoint_apprise_said", default=None)
"""Where the log lines of apprise and of its HTTP client go while this thread uses them. They may contain addresses."""


def _keep_secrets() -> None:
    for name in ("apprise", "urllib3.connectionpool"):
        logger = logging.getLogger(name)
        if _collect not in logger.filters:
            logger.addFilter(_collect)


def _collect(record: logging.LogRecord) -> bool:
    said = _said.get()
    if said is not None and record.levelno >= logging.WARNING:
        said.append(record.getMessage())
    return said is None


def _reason(said: Sequence[str]) -> str:
    """Return why a service did not accept a message, from what apprise said; without any part of an address.

    >>> _reason(["Failed to send JSON POST notification: Unknown, error=503."])
    'it answered with the status 503'
    >>> _reason(["A Connection error occurred sending JSON notification to top-secret."])
    'it cannot be reached'
    >>> _reason([])
    'it did not accept the message'
    """
    status = re.search(r"\berror=([1-5]\d\d)\b", " ".join(said))
    if status is not None:
        return f"it answered with the status {status[1]}"
    unreachable = any(re.search(r"connection error|socket|timed? ?out", each, re.IGNORECASE) for each in said)
    return "it cannot be reached" if unreachable else "it did not accept the message"
