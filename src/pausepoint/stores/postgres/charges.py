"""What descendants of sessions have spent: rows of a table, which are folded into the rows of the sessions."""

from __future__ import annotations

from pausepoint.stores.postgres.connection import Connection

AT_ONCE = 5_000
"""How many charges one transaction folds."""


MOST = 10
"""How often `fold` continues if charges are left, so that the connection is free for other work again."""


def fold(connection: Connection) -> None:
    """Fold charges, each time in a transaction of its own. Usually there are none, and nothing is written."""
    for _ in range(MOST):
        connection.begin()
        found = connection.execute(connection.queries["any_charges"]).get
        if found:
            connection.execute(connection.queries["fold_charges"], (AT_ONCE,))
        connection.commit()
        if not found:
            return
