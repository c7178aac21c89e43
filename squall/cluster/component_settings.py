"""Settings of components as a record stores them: only those that differ from the topology's.

A component has every setting of its topology, with the same or with another value, and may have more. So `merged` returns what
`differences` was given. Values are the same if JSON writes them alike: 1, 1.0 and true are three values.
Must not know: what the settings mean, records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Settings = Mapping[str, Any]


def differences(conf: Settings, component_confs: Mapping[str, Settings]) -> dict[str, Settings]:
    """Return the settings in which each component differs from the topology, by its id."""
    return {
        component: {key: value for key, value in own.items() if key not in conf or _differ(value, conf[key])}
        for component, own in component_confs.items()
    }


def merged(conf: Settings, component_confs: Mapping[str, Settings]) -> dict[str, Settings]:
    """Return all settings of each component, by its id: the topology's, and above them its own."""
    return {component: {**conf, **own} for component, own in component_confs.items()}


def _differ(one: object, other: object) -> bool:
    return one is not other and repr(one) != repr(other)
