"""Root ids and edge ids of tuple trees. All are signed 64-bit integers.

A root id is positive and locates its tree. From the highest bit: the spout task (16 bits), how many times the tree's slot has
been used (24 bits), and that slot, an index into the task's table of trees (23 bits). A slot is used again only after at least
`MIN_SLOTS` other slots were used. So an id repeats after 2**24 * 4096 trees of one task at the earliest: 19 hours at a million
trees a second.
Must not know: trees, tasks, queues.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from squall.transport.id_columns import Ids, from_raw
from worker.routing.text_hash import mix

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

SLOT_BITS: Final = 23
GENERATION_BITS: Final = 24
TASK_SHIFT: Final = SLOT_BITS + GENERATION_BITS
#: The most open trees of one spout task.
MAX_SLOTS: Final = 1 << SLOT_BITS
MIN_SLOTS: Final = 4096
SLOT_MASK: Final = MAX_SLOTS - 1
GENERATION_STEP: Final = 1 << SLOT_BITS
GENERATION_MASK: Final = ((1 << GENERATION_BITS) - 1) << SLOT_BITS

#: The size of the blocks in which plain Python draws edge ids.
EDGE_BLOCK: Final = 1024


_GENERATION_STEP = cython.declare(cython.longlong, GENERATION_STEP)
_GENERATION_MASK = cython.declare(cython.longlong, GENERATION_MASK)

#: The step of SplitMix64: 2**64 / golden ratio, odd.
_STEP = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


def first_root(task: int, slot: int, generation: int = 0) -> int:
    """Return the root id of a slot's first use. `generation`: the number from which the slot's uses are counted."""
    return task << TASK_SHIFT | generation % (1 << GENERATION_BITS) << SLOT_BITS | slot


def next_root(root: int) -> int:
    """Return the root id of the next use of the same slot."""
    if root & _GENERATION_MASK == _GENERATION_MASK:
        root &= ~_GENERATION_MASK
    else:
        root += _GENERATION_STEP
    return root


def task_of(root: int) -> int:
    """Return the spout task of a tree."""
    return root >> TASK_SHIFT


def words_of(random: Random) -> Any:
    """Return a block of random edge ids, none of them 0: the fastest way in plain Python."""
    block = from_raw(random.randbytes(8 * EDGE_BLOCK))
    # A zero comes once in 2**54 blocks; `in` searches in C instead of in a loop.
    return block if 0 not in block else Ids([edge for edge in block if edge]) or Ids([1])


class SplitMix:
    """Edge ids by SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). Compiled, it takes a
    twentieth of the time of `Random`."""

    __slots__ = ("state",)

    def __init__(self, seed: int) -> None:
        self.state = seed

    @cython.locals(number=cython.ulonglong)
    def draw(self) -> int:
        """Return the next edge id, which is not 0."""
        number = 0
        while number == 0:  # once in 2**64 numbers, which all differ
            self.state = self.state + _STEP & _MASK
            number = mix(self.state)
        return number if cython.compiled or number < 1 << 63 else number - (1 << 64)
