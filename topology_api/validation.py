"""The rules for a topology: pure functions over specs that return all problems at once, as texts.

Each problem names its component, stream and field. The builder checks these rules before it makes a Topology; code that reads a
description from elsewhere checks them again. This module never sees a user's instance (that is left to `inspection`) and raises
nothing. Cycles between bolts are allowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from topology_api.declarer import KEYED_KINDS, KINDS
from topology_api.fields import DEFAULT_STREAM
from topology_api.names import field_problem, id_problem, name_problem
from topology_api.options import problems_of
from topology_api.topology import DEAD_LETTER_FIELDS, DEAD_LETTERS, ComponentSpec, StreamSpec, Subscription
from topology_api.wording import listed, nearest, shown, typed

MAX_TASKS = 65_535  # task ids are 16 bits on the wire, and 0 is not a task


def problems_of_topology(
    name: object,
    conf: object,
    components: Sequence[ComponentSpec],
    *,
    unread_outputs: Collection[str] = (),
    unread_inputs: Collection[str] = (),
) -> list[str]:
    """Return all problems of a topology, in order: its own, then those of each component in order of declaration.

    unread_outputs, unread_inputs: ids of components whose outputs or inputs could not be read. These faults have been reported
    already; problems that only follow from them are not reported.
    """
    problems = list(_topology_problems(name, conf, components))
    known: dict[str, list[ComponentSpec]] = {}
    for component in components:
        if isinstance(component.id, str):
            known.setdefault(component.id, []).append(component)
    for component in components:
        problems += _component_problems(component)
        unread = isinstance(component.id, str) and component.id in unread_inputs
        problems += _shape_problems(component, unread)
        for subscription in component.inputs if component.kind == "bolt" else ():
            for problem in _subscription_problems(subscription, known, unread_outputs):
                problems.append(f"{_place(component)}, {call_text(subscription)}: {problem}")
        problems += _repeated_inputs(component)
    return problems


def call_text(subscription: Subscription) -> str:
    """Return the grouping call as the user wrote it, without the stream if it is the default stream."""
    if subscription.stream == DEAD_LETTERS:
        return f"dead_letters({shown(subscription.source)})"
    fields = "".join(f", {shown(name)}" for name in subscription.grouping.fields)
    stream = "" if subscription.stream == DEFAULT_STREAM else f", stream={shown(subscription.stream)}"
    return f"{subscription.grouping.kind}_grouping({shown(subscription.source)}{fields}{stream})"


def problems_of_parallelism(changes: object, counts: Mapping[str, int]) -> list[str]:
    """Return all problems of a change of parallelism. changes: the new numbers of tasks by component; counts: the present
    numbers."""
    if not isinstance(changes, Mapping):
        return [f"the parallelism is {typed(changes)}: give a dict from component ids to numbers of tasks"]
    problems = []
    for component, count in changes.items():
        if component not in counts:
            near = nearest(component, counts) if isinstance(component, str) else ""
            known = near or f" (it has: {listed(counts)})"
            problems.append(f"the topology has no component {shown(component)}{known}")
            continue
        if problem := _parallelism_problem(count):
            problems.append(f"component {shown(component)}: {problem}")
    total = 0 if problems else sum({**counts, **changes}.values())
    if total > MAX_TASKS:
        problems.append(f"the topology would have {total:,} tasks in all, at most {MAX_TASKS:,} are possible")
    return problems


def _place(component: ComponentSpec) -> str:
    return f"{component.kind} {shown(component.id)}"


def _topology_problems(name: object, conf: object, components: Sequence[ComponentSpec]) -> Iterator[str]:
    if problem := name_problem(name):
        yield f"the topology's name {problem}"
    yield from (f"the topology's configuration: {problem}" for problem in problems_of(conf, "topology"))
    if not components:
        yield "the topology is empty: declare at least one spout with set_spout"
    elif not any(component.kind == "spout" for component in components):
        yield "the topology has no spout, so nothing would ever flow: declare one with set_spout"
    first: dict[str, ComponentSpec] = {}
    for component in components:
        if not isinstance(component.id, str):
            continue
        if component.id in first:
            kinds = f"a {first[component.id].kind} and a {component.kind}"
            yield f"the id {shown(component.id)} is used twice, by {kinds}: ids are unique in a topology"
        first.setdefault(component.id, component)
    sizes = [component.parallelism for component in components]
    if not any(map(_parallelism_problem, sizes)) and sum(sizes) > MAX_TASKS:
        largest = max(components, key=lambda component: component.parallelism)
        yield (
            f"the topology has {sum(sizes):,} tasks in all, at most {MAX_TASKS:,} are possible;"
            f" the largest is {_place(largest)} with a parallelism of {largest.parallelism:,}"
        )


def _parallelism_problem(value: object) -> str | None:
    if type(value) is int and 1 <= value <= MAX_TASKS:
        return None
    return f"parallelism is {typed(value)}: give an int from 1 to {MAX_TASKS}"


def _component_problems(component: ComponentSpec) -> Iterator[str]:
    place = _place(component)
    if problem := id_problem(component.id):
        yield f"{place}: its id {problem}"
    if component.kind not in ("spout", "bolt"):
        yield f"{place}: its kind is {component.kind!r}, which is neither spout nor bolt"
    if problem := _parallelism_problem(component.parallelism):
        yield f"{place}: {problem}"
    yield from (f"{place}, configuration: {problem}" for problem in problems_of(component.conf, "component"))
    for stream, spec in component.outputs.items():
        for problem in _stream_problems(component, stream, spec):
            yield f"{place}, stream {shown(stream)}: {problem}"


def _stream_problems(component: ComponentSpec, stream: str, spec: StreamSpec) -> Iterator[str]:
    if stream == DEAD_LETTERS and component.kind == "spout" and spec == StreamSpec(DEAD_LETTER_FIELDS):
        return
    if problem := id_problem(stream):
        yield f"its name {problem}"
    yield from (f"the name of a field {problem}" for name in spec.fields if (problem := field_problem(name)))
    yield from _repeated(spec.fields)


def _repeated(fields: Sequence[str]) -> Iterator[str]:
    for name, count in Counter(name for name in fields if isinstance(name, str)).items():
        if count > 1:
            yield f"the field {name!r} occurs {count} times"


def _shape_problems(component: ComponentSpec, inputs_unread: bool) -> Iterator[str]:
    if component.kind == "spout" and component.inputs:
        calls = ", ".join(map(call_text, component.inputs))
        yield f"{_place(component)}: a spout has no inputs, but this one has: {calls}"
    if component.kind == "bolt" and not component.inputs and not inputs_unread:
        yield f"{_place(component)}: it has no inputs: add .shuffle_grouping(source), or another grouping"


def _subscription_problems(
    subscription: Subscription, known: Mapping[str, Sequence[ComponentSpec]], unread_outputs: Collection[str]
) -> Iterator[str]:
    grouping = subscription.grouping
    if grouping.kind not in KINDS:
        yield f"there is no grouping {grouping.kind!r}{nearest(grouping.kind, KINDS)}"
        return
    keyed = grouping.kind in KEYED_KINDS
    if keyed and not grouping.fields:
        yield "it names no fields: say which fields are the key"
    if grouping.fields and not keyed:
        takers = " and ".join(KEYED_KINDS)
        yield f"it names fields ({listed(grouping.fields)}), which only {takers} groupings take"
    yield from _repeated(grouping.fields)
    if (sources := known.get(subscription.source)) is None:
        yield f"there is no component {shown(subscription.source)}{nearest(subscription.source, known)}"
    elif subscription.source not in unread_outputs:
        # If an id is used twice, report only problems that all components with this id have.
        found = [list(_stream_use_problems(subscription, source)) for source in sources]
        if all(found):
            yield from found[0]


def _stream_use_problems(subscription: Subscription, source: ComponentSpec) -> Iterator[str]:
    grouping = subscription.grouping
    if (spec := source.outputs.get(subscription.stream)) is None:
        streams = [name for name in source.outputs if name != DEAD_LETTERS]
        there = f"its streams: {listed(streams)}" if streams else "it has no output streams"
        near = nearest(subscription.stream, streams)
        yield f"{_place(source)} has no stream {shown(subscription.stream)} ({there}){near}"
        return
    where = f"stream {shown(subscription.stream)} of {_place(source)}"
    if grouping.kind == "direct" and not spec.direct:
        yield f"{where} is not direct: declare it as Stream(fields, direct=True), or use another grouping"
    if grouping.kind != "direct" and spec.direct:
        yield f"{where} is direct: only direct_grouping can read it"
    for name in dict.fromkeys(grouping.fields):
        if name not in spec.fields:
            near = nearest(name, spec.fields) if isinstance(name, str) else ""
            yield f"{where} has no field {shown(name)} (its fields: {listed(spec.fields)}){near}"


def _repeated_inputs(component: ComponentSpec) -> Iterator[str]:
    first: dict[tuple[str, str], Subscription] = {}
    for subscription in component.inputs:
        if (key := (subscription.source, subscription.stream)) in first:
            yield (
                f"{_place(component)}: it reads stream {shown(key[1])} of {shown(key[0])} twice,"
                f" by {call_text(first[key])} and by {call_text(subscription)}: drop one, or use two bolts"
            )
        first.setdefault(key, subscription)
