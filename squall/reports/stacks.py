"""Where the threads and the calls of a worker are at one moment: the values that travel from a worker to `squall stack`.

Must not know: how a worker finds them, how they are shown.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from squall.exact_structs import build_type_info

#: The most stacks of one worker, and the most frames of one stack.
MOST_STACKS: Final = 200
MOST_FRAMES: Final = 60


class StackFrame(Struct, frozen=True):
    """A line of code that is being executed. `code`: its text; "" if the source is not there."""

    file: str
    line: int
    function: str
    code: str = ""


class CallStack(Struct, frozen=True):
    """Where a thread is, or a call of an asynchronous bolt. `frames`: the outermost first.

    `component` and `task`: the task whose call runs here; "" and null if no user's call runs. `seconds`: how long the call has
    run; null if unknown. `tuple_text`: the call's tuple, or "".
    """

    thread: str
    component: str
    task: int | None
    seconds: float | int | None
    tuple_text: str
    frames: tuple[StackFrame, ...]


class WorkerStacks(Struct, frozen=True):
    """The answer of a worker. `number`: that of the question."""

    number: int
    pid: int
    stacks: tuple[CallStack, ...]
    #: How many stacks are not shown.
    more: int = 0


build_type_info(WorkerStacks)
