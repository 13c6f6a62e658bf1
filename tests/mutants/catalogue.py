"""All mutants, in the order of the rooms."""

from __future__ import annotations

from tests.mutants.engine import ENGINE
from tests.mutants.runtime import RUNTIME
from tests.mutants.stores import STORES
from tests.mutants.values import VALUES

CATALOGUE = (*STORES, *RUNTIME, *ENGINE, *VALUES)
