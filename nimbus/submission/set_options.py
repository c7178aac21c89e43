"""Options and numbers of tasks that operators have set: by `-o` and `rebalance`. A new version of a topology keeps them.

Pure functions over values. They take priority over what the topology's own code says, as `-o` does.
Must not know: the store, requests, who set what.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from squall.cluster.records import SetOptions, TopologyRecord
from squall.security.redaction import redacted
from topology_api.options import OPTIONS

Confs = tuple[dict[str, object], dict[str, dict[str, object]]]


def kept_by(before: SetOptions, new: SetOptions, components: Collection[str]) -> SetOptions:
    """Return the options of a new version: those set before, unless they are set differently now. What was set for a component
    that is gone is forgotten."""
    return SetOptions(
        {**before.topology, **new.topology},
        {
            component: {**before.components.get(component, {}), **new.components.get(component, {})}
            for component in components
            if component in before.components or component in new.components
        },
        {name: count for name, count in before.parallelism.items() if name in components},
    )


def with_options(
    conf: Mapping[str, object], component_confs: Mapping[str, Mapping[str, object]], options: SetOptions
) -> Confs:
    """Return the configurations of a topology and of its components with these options."""
    whole = {**conf, **options.topology}
    own = {
        component: {**values, **options.topology, **options.components.get(component, {})}
        for component, values in component_confs.items()
    }
    return whole, own


def rebalanced(
    options: SetOptions | None, workers: int | None, parallelism: Mapping[str, int] | None
) -> SetOptions | None:
    """Return the options after a rebalance."""
    if workers is None and not parallelism:
        return options
    options = options or SetOptions()
    own = options.topology if workers is None else {**options.topology, "topology.workers": workers}
    return SetOptions(own, options.components, {**options.parallelism, **(parallelism or {})})


def shown_options(options: SetOptions | None) -> dict[str, Any]:
    """Return the options as one mapping, without secrets: `key`, `component:key`, and `component:tasks`."""
    if options is None:
        return {}
    found = dict(redacted(options.topology))
    for component, values in options.components.items():
        found |= {f"{component}:{key}": value for key, value in redacted(values).items()}
    return found | {f"{component}:tasks": count for component, count in options.parallelism.items()}


def differences(before: TopologyRecord, after: TopologyRecord) -> dict[str, list[Any]]:
    """Return what differs between the settings of two versions, without secrets: option -> [before, after]; None: not set."""
    found: dict[str, list[Any]] = {}
    old, new = _flat(before), _flat(after)
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            found[key] = [old.get(key), new.get(key)]
    return found


def is_of_the_whole(key: str) -> bool:
    """Return whether an option is one of the whole topology: a component's value of it is that at the submission."""
    return key in OPTIONS and OPTIONS[key].scope == "topology"


def _flat(record: TopologyRecord) -> dict[str, Any]:
    flat: dict[str, Any] = dict(redacted(record.conf))
    for component, values in record.component_confs.items():
        own = {
            key: value
            for key, value in redacted(values).items()
            if flat.get(key) != value
            and not is_of_the_whole(key)  # a rebalance sets the number of workers for the whole
        }
        flat |= {f"{component}:{key}": value for key, value in own.items()}
    for row in record.tasks:
        flat[f"{row.component}:tasks"] = flat.get(f"{row.component}:tasks", 0) + 1
    return flat
