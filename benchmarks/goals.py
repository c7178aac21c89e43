"""A table of what was measured beside what was wanted. It must not know what is measured."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.child import spread

__all__ = ["Goal", "print_goals"]


@dataclass(frozen=True)
class Goal:
    """Values of several rounds; the median is compared with the bound. `bound` None: nothing is wanted."""

    what: str
    values: list[float]
    bound: float | None = None
    #: Whether the bound is the least value that is wanted; otherwise the greatest.
    least: bool = False
    #: How values are printed, and their unit.
    form: str = ".2f"
    unit: str = ""

    @property
    def wanted(self) -> str:
        """Return the bound as text."""
        if self.bound is None:
            return ""
        return f"{'>=' if self.least else '<='} {self.bound:g}{self.unit}"

    @property
    def result(self) -> str:
        """Return whether the goal is met."""
        if self.bound is None:
            return ""
        ordered = sorted(self.values)
        middle = len(ordered) // 2
        median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
        return "met" if (median >= self.bound if self.least else median <= self.bound) else "not met"


def print_goals(goals: list[Goal]) -> None:
    """Print a line for each: median with least and greatest value, what is wanted, whether it is met."""
    width = max(len(goal.what) for goal in goals)
    print(f"\n{'':<{width}}{'median (least to greatest)':>36}{'wanted':>14}{'':>10}")
    for goal in goals:
        shown = spread(goal.values, goal.form) + goal.unit
        print(f"{goal.what:<{width}}{shown:>36}{goal.wanted:>14}{goal.result:>10}")
