"""What may watch a task: the user's hooks, debug logging, the checks of the testing helpers.

An observed task runs by the general way, not by the hot loop, so that watching costs nothing where nobody watches.
An error in a hook is reported like any other error of the user's code and harms no tuple.
Must not know: links, trackers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from topology_api import Context, Failure, Hook, InvalidConfig
from topology_api.tuples import Tuple
from worker.emitter import BoltEmitter, SpoutEmitter


class TaskObserver(Protocol):
    """The calls of `topology_api.Hook`, for one task."""

    def opened(self, context: Context) -> None: ...

    def emitted(self, task: int, stream: str, values: tuple[Any, ...], targets: Sequence[int]) -> None: ...

    def executing(self, tup: Tuple) -> None: ...

    def executed(self, tup: Tuple) -> None: ...

    def acked(self, tup: Tuple) -> None: ...

    def failed(self, tup: Tuple, failure: Failure) -> None: ...

    def spout_acked(self, message_id: Any) -> None: ...

    def spout_failed(self, message_id: Any, failure: Failure) -> None: ...

    def closed(self) -> None: ...


class Hooks:
    """The observers of one task, called in order; what one raises is reported and stops no other."""

    def __init__(self, hooks: Sequence[TaskObserver], report: Callable[[str, BaseException], object]) -> None:
        self.hooks = list(hooks)
        self.report = report

    def each(self, name: str, *args: Any) -> None:
        """Call one method of every hook."""
        for hook in self.hooks:
            try:
                getattr(hook, name)(*args)
            except BaseException as error:
                self.report(f"{type(hook).__name__}.{name}", error)

    def opened(self, context: Context) -> None:
        self.each("opened", context)

    def emitted(self, task: int, stream: str, values: tuple[Any, ...], targets: Sequence[int]) -> None:
        self.each("emitted", task, stream, values, targets)

    def executing(self, tup: Tuple) -> None:
        self.each("executing", tup)

    def executed(self, tup: Tuple) -> None:
        self.each("executed", tup)

    def acked(self, tup: Tuple) -> None:
        self.each("acked", tup)

    def failed(self, tup: Tuple, failure: Failure) -> None:
        self.each("failed", tup, failure)

    def spout_acked(self, message_id: Any) -> None:
        self.each("spout_acked", message_id)

    def spout_failed(self, message_id: Any, failure: Failure) -> None:
        self.each("spout_failed", message_id, failure)

    def closed(self) -> None:
        self.each("closed")


class DebugLog(Hook):
    """`topology.debug`: writes every emission and execution of a task to its log."""

    def opened(self, context: Context) -> None:
        self.log = context.log

    def emitted(self, task: int, stream: str, values: tuple[Any, ...], targets: Sequence[int]) -> None:
        self.log.info("task %d emitted %r on %r to tasks %s", task, values, stream, list(targets))

    def executing(self, tup: Tuple) -> None:
        self.log.info("executing %r", tup)

    def failed(self, tup: Tuple, failure: Failure) -> None:
        self.log.info("failed %r: %s", tup, failure)


def load_hooks(names: Sequence[str]) -> list[Hook]:
    """The hooks named in `topology.auto.task.hooks` ("package.module:Class"), made new for a task."""
    hooks = []
    for name in names:
        module, _, attribute = str(name).partition(":")
        try:
            made = getattr(importlib.import_module(module), attribute)()
        except Exception as error:
            raise InvalidConfig(
                [f"topology.auto.task.hooks: {name!r} cannot be made: {type(error).__name__}: {error}"]
            ) from error
        if not isinstance(made, Hook):
            raise InvalidConfig([f"topology.auto.task.hooks: {name!r} is no subclass of topology_api.Hook"])
        hooks.append(made)
    return hooks


def watchers(observers: Sequence[Any], context: Context) -> list[Any]:
    """The observers of one task: most calls do not say which task they are about, so an observer that has `for_task(context)`
    is asked for one that knows; any other watches all tasks itself."""
    return [
        observer.for_task(context) if hasattr(observer, "for_task") else observer for observer in observers
    ]


class ObservedBoltEmitter(BoltEmitter):
    """emit() of a watched bolt task."""

    __slots__ = ("observer",)

    observer: TaskObserver

    def emit(self, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        row = self.row(values)
        before = [len(box.rows) for box in self.boxes()]
        super().emit(row, anchors=anchors, stream=stream)
        tell(self, before, stream, row)

    def emit_direct(self, task: int, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        row = self.row(values)
        before = [len(box.rows) for box in self.boxes()]
        super().emit_direct(task, row, anchors=anchors, stream=stream)
        tell(self, before, stream, row)


class ObservedSpoutEmitter(SpoutEmitter):
    """emit() of a watched spout task."""

    __slots__ = ("observer",)

    observer: TaskObserver

    def emit(self, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        row = self.row(values)
        before = [len(box.rows) for box in self.boxes()]
        super().emit(row, message_id=message_id, stream=stream)
        tell(self, before, stream, row)

    def emit_direct(self, task: int, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        row = self.row(values)
        before = [len(box.rows) for box in self.boxes()]
        super().emit_direct(task, row, message_id=message_id, stream=stream)
        tell(self, before, stream, row)


def tell(
    emitter: ObservedBoltEmitter | ObservedSpoutEmitter, before: list[int], stream: str, row: tuple[Any, ...]
) -> None:
    """Tell the observer of an emission: which outboxes grew says which tasks get it."""
    grown = [box for box, size in zip(emitter.boxes(), before) if len(box.rows) > size]
    emitter.observer.emitted(emitter.task, stream, row, [box.target for box in grown])
