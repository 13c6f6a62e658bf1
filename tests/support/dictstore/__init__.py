"""A second store, made of dictionaries.

It shares no code with the SQLite store, so the suite that every store passes cannot depend on SQLite.
"""

from tests.support.dictstore.data import Data, Kept
from tests.support.dictstore.store import DictStore

__all__ = ["Data", "DictStore", "Kept"]
