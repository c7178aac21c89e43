"""The sentences for events: in the log, over HTTP, on the command line.

No other module puts events (`squall.reports.events`) into words. No code reads these sentences.
Must not know: who keeps events, terminals.
"""

from __future__ import annotations

import signal
from typing import Final

from squall import worker_files
from squall.reports.events import Cause, Event

_STATUSES: Final = {
    worker_files.EXIT_INTERNAL: "an error in Squall itself",
    worker_files.EXIT_LEASE: "its supervisor was away for longer than the lease",
    worker_files.EXIT_HUNG: "a call of user code hung",
    worker_files.EXIT_SUPERSEDED: "another worker has its place",
    worker_files.EXIT_BAD_ORDERS: "it could not read its orders",
    worker_files.EXIT_MEMORY: "it ran out of memory",
    worker_files.EXIT_FILES: "it could not open any more files",
    worker_files.EXIT_UNOPENED: "a component could not be opened or prepared",
    worker_files.EXIT_LIMIT: "it reached its limit of memory",
}
_SIGNALS: Final = {
    signal.SIGSEGV: "a segmentation fault: C code touched memory that is not its own",
    signal.SIGBUS: "a bus error: memory or a mapped file that is not there",
    signal.SIGFPE: "an arithmetic error in C code",
    signal.SIGILL: "an illegal instruction: C code built for another processor, or damaged",
    signal.SIGABRT: "C code or the interpreter called abort()",
    signal.SIGXCPU: "its limit of processor time",
    signal.SIGXFSZ: "its limit of file size",
    signal.SIGSYS: "a system call that is forbidden here",
}
#: The parts that a host prepares for a worker, and the verb for each preparation.
_PARTS: Final = {
    "bundle": ("its bundle", "fetched"),
    "code": ("its code", "fetched"),
    "environment": ("its environment", "built"),
}
_VERSIONS: Final = {"replacement": "the version that is to replace it", "replaced": "the previous version"}


def sentence(event: Event, *, named: bool = True) -> str:
    """Return the event as a sentence, followed by lines of output if they explain the event. `named`: whether the sentence
    names the topology."""
    first, *lines = _text(event, named).split("\n")
    return "\n".join(["; ".join([first, *_retry(event)]), *lines])


def repetition(event: Event) -> str:
    """Return `worker w2: its 3rd death in 4 s; it is started again in 2 s`; return "" for a first death, and for
    a worker that has been up since."""
    if event.attempt < 2 or event.over:
        return ""
    return f"worker {event.worker}: {'; '.join(_retry(event))}"


def cause_text(cause: Cause) -> str:
    """Return how a worker ended: `was killed by SIGKILL (OOM killer: no)`; lines of its output may follow."""
    return "\n".join([_end(cause), *(f"  | {line}" for line in cause.output)])


def _end(cause: Cause) -> str:
    if cause.kind == "killed":
        return f"was killed by its supervisor: {cause.reason}"
    if cause.kind == "reported":
        return f"ended by itself with status {cause.status}: {cause.reason}"
    if cause.kind == "signal":
        return _signal_text(cause)
    if cause.kind == "unknown":
        return "is gone, and its exit status is unknown (another supervisor had started it)"
    known = None if cause.status is None else _STATUSES.get(cause.status)
    if known is not None:
        return (
            f"ended with status {cause.status} ({known}, if the status is Squall's) without giving a reason"
        )
    return (
        f"ended with status {cause.status} without giving a reason: sys.exit() or os._exit() in user code, or an error at its"
        " start"
    )


def _signal_text(cause: Cause) -> str:
    try:
        known = signal.Signals(cause.signal or 0)
    except ValueError:
        return f"was killed by signal {cause.signal}{', core dumped' * cause.core}"
    if known == signal.SIGKILL:
        killer = {True: "yes", False: "no", None: "unknown"}[cause.oom]
        return f"was killed by SIGKILL (OOM killer: {killer})"
    if known in _SIGNALS:
        return f"died of {known.name} ({_SIGNALS[known]}{', core dumped' * cause.core})"
    return f"was killed by {known.name}{', core dumped' * cause.core}"


def _text(event: Event, named: bool) -> str:
    """Return the sentence for the event, without its consequences."""
    match event.kind:
        case "died":
            return f"{_label(event, named)} {'' if event.cause is None else cause_text(event.cause)}"
        case "not_started":
            reasons = (_preparing(event, "cannot be"), event.error)
            return f"{_label(event, named)} cannot be started: {': '.join(filter(None, reasons))}"
        case "waits":
            return f"{_label(event, named)} waits: {_preparing(event, 'is being')}"
        case "host_lost":
            silence, workers = f"{event.within_secs:g} s", ", ".join(event.workers)
            return f"{event.host} was given up: no heartbeat for {silence}; its workers ({workers}) are placed elsewhere"
        case "file_lost":
            return (
                f"its {event.part} is lost: no Nimbus that answers has the file {event.file}. Running workers go on; no worker"
                " can be started on a host without the file: submit the topology again, with --replace"
            )
        case "rolled_back":
            left = f" ({_tuples(event.count)} were pending)" if event.count else ""
            back = (
                f"the version {event.version} was rolled back{left}, and {event.successor} has the name again"
            )
            return f"{back}: {event.error}"
        case "handed_over":
            pending = f"{_tuples(event.count)} of {event.component} that were pending in {event.version}"
            if not event.error:
                return f"{pending} were handed to {event.successor}"
            return f"{pending} are kept as dead letters: {event.error} (`squall dead-letters {event.topology} list`)"
        case "replacement_gone":
            return f"the version that was to replace {event.version} is gone"
        case "unreadable":
            return f"{_VERSIONS.get(event.part, event.part)} cannot be read ({event.error}): repair or remove that value"
        case "text":
            return event.error


def _tuples(count: int) -> str:
    return f"{count:,} tuple{'s' * (count != 1)}"


def _label(event: Event, named: bool) -> str:
    pid = "" if event.pid is None else f" (pid {event.pid})"
    return f"worker {event.worker}{pid}{f' of topology {event.topology!r}' * named}"


def _preparing(event: Event, verb: str) -> str:
    """Return a text such as `its environment cannot be built`; "" when the process itself is meant."""
    if event.part not in _PARTS:
        return ""
    what, prepared = _PARTS[event.part]
    return f"{what} {verb} {prepared}"


def _retry(event: Event) -> list[str]:
    """Return texts such as `its 3rd death in 4 s` and `it is started again in 2 s`; none if the worker is not started again."""
    if event.retry_in_secs is None:
        return []
    died = event.kind == "died"
    name, done = ("death", "started") if died else ("failed preparation", "tried")
    if event.over:
        again = f"it was started {'again' if died else 'later'}"
    else:
        again = f"it is {done} again {f'in {event.retry_in_secs:.0f} s' if event.retry_in_secs > 0 else 'at once'}"
    count = f"its {_ordinal(event.attempt)} {name} in {event.within_secs:.0f} s"
    return [count, again] if event.attempt > 1 else [again]


def _ordinal(number: int) -> str:
    tens, ones = divmod(number % 100, 10)
    ending = "th" if tens == 1 else {1: "st", 2: "nd", 3: "rd"}.get(ones, "th")
    return f"{number}{ending}"
