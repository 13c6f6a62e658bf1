"""The project's name, and the names of files, settings and environment variables derived from it."""

NAME = "pausepoint"
FOLDER = f".{NAME}"
"""The folder for a project's store, and for Pausepoint's own files inside an artifact folder."""

DEFAULT_STORE = f"{FOLDER}/{NAME}.db"


def variable(name: str) -> str:
    """Return the name of an environment variable.

    >>> variable("STORE")
    'PAUSEPOINT_STORE'
    """
    return f"{NAME.upper()}_{name}"
