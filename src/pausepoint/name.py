"""The project's name, and the files, settings and variables that are named after it."""

NAME = "pausepoint"
FOLDER = f".{NAME}"
"""The folder that holds a project's store, and the notes inside a folder of artifacts."""

DEFAULT_STORE = f"{FOLDER}/{NAME}.db"


def variable(name: str) -> str:
    """Return the name of an environment variable.

    >>> variable("STORE")
    'PAUSEPOINT_STORE'
    """
    return f"{NAME.upper()}_{name}"
