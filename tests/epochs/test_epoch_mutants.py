"""The simulation of epochs promises: whichever guard of the protocol is removed, it is missed.

The seeds are fixed, so that a mutant is found or not found in every run. One that is no longer found either shows that the
simulation has lost a fault, or that its guard is not needed any more.
"""

from __future__ import annotations

import pytest

from tests.epochs.epoch_mutants import MUTANTS, QUICK
from tests.epochs.epochs_run import find

#: Seeds for mutants of which any run misses the guard soon, and for those that need two faults at the right moments.
FEW, MANY = 60, 4000


@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_guard_whose_removal_shows_soon_is_missed(name: str) -> None:
    assert find(name, 0, FEW) is not None


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - QUICK))
def test_a_guard_whose_removal_shows_rarely_is_missed(name: str) -> None:
    assert find(name, 0, MANY) is not None
