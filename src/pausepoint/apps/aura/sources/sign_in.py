"""Sign in to Google Classroom in a browser, and keep the token for ``classroom:TOKEN.json``.

Google's own flow for installed programs does the work (the extra ``pausepoint[classroom]``). The browser sends its
answer to a port of this machine. The token may only read, and only its owner can read the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pausepoint.apps.files import put
from pausepoint.apps.input import BadInput

SCOPES = [
    f"https://www.googleapis.com/auth/classroom.{name}"
    for name in ("courses.readonly", "coursework.me.readonly", "profile.emails", "rosters.readonly")
]
PATIENCE = 300
"""How many seconds a person has for the sign-in."""

WHERE = "Create a client for a desktop app at https://console.cloud.google.com/apis/credentials, and download its file."


def sign_in(client: Path, token: Path) -> Path:
    """Open a browser, wait for the consent, and write the token. Raises `BadInput` if there is none."""
    flow = _flow(client)
    if not token.parent.is_dir():
        raise BadInput(f"token: There is no folder {token.parent}. Create it, or name another file.")
    from oauthlib.oauth2 import OAuth2Error

    try:
        found = flow.run_local_server(host="127.0.0.1", port=0, timeout_seconds=PATIENCE)
    except OAuth2Error as error:
        raise BadInput(f"client: Google gave no token ({error.error}). Sign in again, and allow the access.") from None
    except AttributeError:  # the library has no answer to read
        raise BadInput(f"client: Nobody signed in within {PATIENCE} seconds. Try again.") from None
    put(token, found.to_json().encode(), private=True)
    return token


def _flow(client: Path) -> Any:
    try:
        from google_auth_oauthlib.flow import InstalledAppFlow
    except ImportError as error:
        raise BadInput(
            f"client: A sign-in needs google-auth-oauthlib. Install it: pip install 'pausepoint[classroom]' ({error})"
        ) from None
    try:
        return InstalledAppFlow.from_client_secrets_file(str(client), SCOPES)
    except OSError as error:
        raise BadInput(f"client: {client} cannot be read: {error.strerror}. {WHERE}") from None
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"client: {client} is not the file of an OAuth client. {WHERE}") from None
