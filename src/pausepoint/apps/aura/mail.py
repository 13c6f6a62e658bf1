"""The report as an e-mail file: text and HTML in one message that a mail program opens as a draft."""

from __future__ import annotations

from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from pausepoint.apps.words import one_line


def as_mail(title: str, text: str, html: str, *, to: str, sent: datetime, name: str) -> bytes:
    """Return the bytes of the message. The same report gives the same bytes: nothing in it is random."""
    message = EmailMessage(policy=SMTP)
    message["Subject"] = one_line(title)
    if to:
        message["To"] = to
    message["Date"] = format_datetime(sent)
    message["Message-ID"] = f"<{name}@pausepoint.invalid>"
    message["X-Unsent"] = "1"  # opens as a draft, so that a person sends it
    message.set_content(text, cte="quoted-printable")
    message.add_alternative(html, subtype="html", cte="quoted-printable")
    message.set_boundary(f"=={name}==")
    return message.as_bytes()
