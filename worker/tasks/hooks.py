"""Hooks around a task's calls: the user's hooks, debug logging, and the checks of the testing tools.

A task with hooks is run by the general function instead of the hot loop, so other tasks pay nothing for hooks. An error in
a hook is reported like any other error of the user's code, and harms no tuple.
Must not know: links, trackers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from topology_api import Context, Failure, Hook, InvalidConfig
from topology_api.tuples import Tuple
from worker.routing.outbox import Outbox
from worker.routing.router import Row
from worker.tasks.emitter import BoltEmitter, Emitter, SpoutEmitter, ids_of, rows_of
from worker.tasks.holding import HoldingEmitter


class Hooks:
    """The hooks of one task, called in order. An error of one hook is reported, and the others are still called."""

    def __init__(self, hooks: Sequence[Hook], report: Callable[[str, BaseException], object]) -> None:
        self.hooks = list(hooks)
        self.report = report

    def call_all(self, name: str, *args: Any) -> None:
        """Call one method of every hook."""
        for hook in self.hooks:
            try:
                getattr(hook, name)(*args)
            except BaseException as error:
                self.report(f"{type(hook).__name__}.{name}", error)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a function that calls this method of every hook."""
        return partial(self.call_all, name)


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
    """Return new hooks for one task, of the classes in `topology.auto.task.hooks` ("package.module:Class")."""
    hooks = []
    for name in names:
        what = f"topology.auto.task.hooks: {name!r}"
        module, _, attribute = str(name).partition(":")
        try:
            made = getattr(importlib.import_module(module), attribute)()
        except Exception as error:
            raise InvalidConfig([f"{what} cannot be made: {type(error).__name__}: {error}"]) from error
        if not isinstance(made, Hook):
            raise InvalidConfig([f"{what} is not a subclass of topology_api.Hook"])
        hooks.append(made)
    return hooks


def watchers(observers: Sequence[Any], context: Context) -> list[Any]:
    """Return the observers of one task. An observer with `for_task(context)` makes a hook for the task; any other observer gets
    the calls of all tasks (most calls do not name their task).
    """
    return [each.for_task(context) if hasattr(each, "for_task") else each for each in observers]


class Observed(Emitter):
    """The common base of the emitters of tasks with hooks."""

    observer: Hooks

    def observe(self, emit: Callable[[], None], stream: str, row: tuple[Any, ...]) -> None:
        """Emit, then call the hooks with the target tasks: those whose outboxes have grown."""
        before = [len(box.rows) for box in self.boxes()]
        emit()
        grown = [box.target for box, size in zip(self.boxes(), before) if len(box.rows) > size]
        self.observer.emitted(self.task, stream, row, grown)


class ObservedBoltEmitter(Observed, BoltEmitter):
    """emit() of a bolt task with hooks."""

    def emit(self, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        row = self.row(values)
        self.observe(partial(super().emit, row, anchors=anchors, stream=stream), stream, row)

    def emit_direct(self, task: int, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        row = self.row(values)
        self.observe(partial(super().emit_direct, task, row, anchors=anchors, stream=stream), stream, row)


class ObservedHoldingEmitter(Observed, HoldingEmitter):
    """emit() of a stateful bolt's task with hooks, which hear of an emission when it is certain."""

    def send(self, row: Row, boxes: list[Outbox], anchors: list[Tuple], stream: str) -> None:
        self.observe(partial(self.spread, row, boxes, anchors), stream, row)


class ObservedSpoutEmitter(Observed, SpoutEmitter):
    """emit() of a spout task with hooks."""

    def emit(self, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        row = self.row(values)
        self.observe(partial(super().emit, row, message_id=message_id, stream=stream), stream, row)

    def emit_many(self, rows: Any, *, message_ids: Any = None, stream: str = "default") -> None:
        at = 0
        rows = rows_of(rows)
        try:
            for values, message_id in zip(rows, ids_of(rows, message_ids)):
                self.emit(values, message_id=message_id, stream=stream)
                at += 1
        except BaseException as error:
            error.emitted = at  # type: ignore[attr-defined]
            raise

    def emit_direct(self, task: int, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        row = self.row(values)
        emit = partial(super().emit_direct, task, row, message_id=message_id, stream=stream)
        self.observe(emit, stream, row)
