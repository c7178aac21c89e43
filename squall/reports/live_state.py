"""What the running tasks of a worker have for one key: the question, and the answer that travels to `squall state get`. A local
cluster asks for copies of the values instead.

Must not know: how a worker finds them, how they are shown.
"""

from __future__ import annotations

from msgspec import Struct

from squall.exact_structs import build_type_info

Times = float | int | list[float | int] | None


class StateQuestion(Struct, frozen=True):
    """Which key of which component is asked for.

    `number`: rises with each question to a worker. `key`: JSON, in the form in which `squall state export` writes keys.
    `state`: only this state, or the timers of this name; "": all. `exact`: the pickle of the key itself, in base64, of an asker
    that opens the pickles of the worker: the answer has copies instead of rows. Who writes into a worker's directory decides
    already what the worker runs, and no request of the network sets this.
    """

    number: int
    component: str
    key: str
    state: str = ""
    exact: str = ""


class LiveRow(Struct, frozen=True):
    """A state of a key, or a timer.

    `state`: its name. `kind`: "ValueState", "ListState", "MapState" or "timer". `key`, `value`: JSON, as `squall state export`
    writes it, as texts, since integers of any size and any text may be in them; the value of a timer is the time at which it
    is due. `written`, `expires`: with a ttl, in seconds since 1970; of a list or map one for each part. `omitted`: what of the
    value is not shown; "": nothing.
    """

    state: str
    kind: str
    key: str
    value: str
    written: Times = None
    expires: Times = None
    omitted: str = ""


class TaskState(Struct, frozen=True):
    """What one task has for the key. `task`: its id; `index`: its number in its component. `epoch`: the last commit that the
    task knows of; null: its topology commits nothing. `why`: why the task has not answered; "": it has."""

    task: int
    index: int
    epoch: int | None = None
    rows: tuple[LiveRow, ...] = ()
    why: str = ""


class StateCopy(Struct, frozen=True):
    """The values of the key in one task. `task`: its id. `owns`: whether the task has state for the key. `values`: a pickle of
    {state: value}, in base64."""

    task: int
    owns: bool
    values: str


class WorkerState(Struct, frozen=True):
    """The answer of a worker. `number`: that of the question. `states`: the names of the component's states. `refusal`: why the
    question cannot be answered by any task of the component; "": it can be. `copies`: for a question with an `exact` key."""

    number: int
    tasks: tuple[TaskState, ...] = ()
    states: tuple[str, ...] = ()
    refusal: str = ""
    copies: tuple[StateCopy, ...] = ()


build_type_info(StateQuestion, WorkerState)
