"""Settings: layers of configuration merged into one; the operator's values have priority.

    defaults < site file < working folder < environment < the topology's conf < a component's conf
             < -o key=value < -o component:key=value

The options table of topology_api holds the rules for keys and values; this module reads the sources of values, and names the
source in each problem. `scripts/reference_pages.py` generates `conf/defaults.yaml` and the reference table from the same
options table. PyYAML is imported on first use. Must not know: who uses the settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.stores.paths import InvalidPath, check_path
from topology_api import storm_options
from topology_api.epoch_rules import STATE_PATH, epoch_problems, is_auto, state_path
from topology_api.errors import InvalidConfig
from topology_api.options import OPTIONS, PREFIXES, Scope, defaults, json_copy, problems_of, without_daemons
from topology_api.wording import listed, nearest, shown, typed

if TYPE_CHECKING:
    from topology_api.topology import Topology

ENVIRONMENT_PREFIX = "SQUALL_"
#: Defaults of local clusters, where they differ: a topology whose every tuple fails comes to an end.
LOCAL_DEFAULTS = {"topology.on.outage": "give-up"}


@dataclass
class Overrides:
    """The operator's -o options: for the whole topology, and for single components."""

    topology: dict[str, object] = field(default_factory=dict)
    components: dict[str, dict[str, object]] = field(default_factory=dict)


def overrides_of(conf: Mapping[str, object] | Overrides | None) -> Overrides:
    """Return the overrides in an argument `conf`: a mapping is for the whole topology. Raises InvalidConfig for any other
    type."""
    if isinstance(conf, Overrides):
        return conf
    if conf is not None and not isinstance(conf, Mapping):
        raise InvalidConfig([f"conf is {typed(conf)}: give a dict from keys to values"])
    return Overrides(topology=dict(conf or {}))


@lru_cache(maxsize=1)
def _loader() -> Any:
    """Return PyYAML's safe loader, changed so that a duplicate key is an error and a date is text, as in JSON."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} is there twice", key.start_mark
                    )
                seen.add(str(key.value))
            return super().construct_mapping(node, deep)

    return Loader


def _parse_yaml(text: str) -> Any:
    """Return the value of a YAML text. Raises ValueError, with a message of one line, if it is not YAML."""
    import yaml

    try:
        return yaml.load(text, _loader())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        text = getattr(error, "problem", None) or str(error) or type(error).__name__
        raise ValueError(place + " ".join(text.split())) from None


def _labelled(conf: object, scope: Scope, label: str) -> list[str]:
    return [f"{label}: {problem}" for problem in problems_of(conf, scope)]


def load_site(path: str | Path) -> dict[str, object]:
    """Return the configuration in a YAML file: the site's file, or that of a working folder.

    The file holds one mapping with full keys, such as `topology.workers: 2`. Raises InvalidConfig, with all problems, if the
    file cannot be read, is not YAML, or holds unknown keys or wrong values.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidConfig([f"cannot read {path}: {reason}"], str(path)) from None
    try:
        conf = _parse_yaml(text)
    except ValueError as error:
        raise InvalidConfig([f"it is not valid YAML: {error}"], str(path)) from None
    if conf is None:
        return {}  # an empty file, or one with comments only
    if not isinstance(conf, dict):
        raise InvalidConfig([f"it holds {typed(conf)}: write one 'key: value' a line"], str(path))
    nested = [problem for key in conf if (problem := _nested_problem(key, conf[key]))]
    if problems := nested or problems_of(conf, "daemon"):
        raise InvalidConfig(problems, str(path))
    return json_copy(conf)


def _nested_problem(key: object, value: object) -> str | None:
    """Return the problem of an entry such as `topology: {workers: 2}`, or None. `topology` would be a valid key of the user's
    own, but the author must mean `topology.workers: 2`."""
    if f"{key}." not in PREFIXES or not isinstance(value, dict):
        return None
    inner = next(iter(value), "workers")
    return f"the key {key!r} holds a mapping: write full keys, such as '{key}.{inner}: ...'"


def _environment_name(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_")


def environment_conf(environ: Mapping[str, str]) -> dict[str, object]:
    """Return the options that are set in the environment: `SQUALL_TOPOLOGY_WORKERS=2` is `topology.workers: 2`.

    Values are read as YAML. A variable that begins with SQUALL_ but not with a group of options (SQUALL_NIMBUS) is not a
    setting and is ignored; an unknown option of a group (SQUALL_TOPOLOGY_WROKERS) is a problem. Raises InvalidConfig with all
    problems.
    """
    keys = {_environment_name(key): key for key in OPTIONS}
    groups = tuple(_environment_name(prefix) for prefix in PREFIXES)
    unknown = (name for name in storm_options.names() if name not in OPTIONS)
    storm = {_environment_name(name): storm_options.instead_of(name) for name in unknown}
    conf: dict[str, object] = {}
    problems = []
    for variable in sorted(environ):
        if variable in keys:
            try:
                value = _parse_yaml(environ[variable])
            except ValueError as error:
                problems.append(f"{variable}={environ[variable]}: it is not valid YAML: {error}")
                continue
            problems += _labelled({keys[variable]: value}, "daemon", variable)
            conf[keys[variable]] = value
        elif variable in storm:
            problems.append(f"{variable}: it names an option of Storm's; {storm[variable]}")
        elif variable.startswith(groups):
            problems.append(f"{variable}: it names no option{nearest(variable, keys)}")
    if problems:
        raise InvalidConfig(problems, "the environment")
    return conf


def parse_override(text: str) -> tuple[str | None, str, object]:
    """Parse `key=value` or `component:key=value`; return (component or None, key, value). The value is read as YAML.

    Raises InvalidConfig if the text has neither form; `merged` checks whether key and value are valid.
    """
    name, equals, value_text = text.partition("=")
    component, colon, key = name.rpartition(":")
    if not equals or not key.strip() or (colon and not component.strip()):
        raise InvalidConfig([f"-o {text}: write -o key=value or -o component:key=value"], "the command line")
    try:
        value = _parse_yaml(value_text)
    except ValueError as error:
        raise InvalidConfig([f"-o {text}: the value is invalid YAML: {error}"], "the command line") from None
    return (component.strip() if colon else None), key.strip(), value


def parse_overrides(texts: Iterable[str]) -> Overrides:
    """Parse all -o of a command line. A later option overrides an earlier one. Raises InvalidConfig with all problems."""
    overrides = Overrides()
    problems: list[str] = []
    for text in texts:
        try:
            component, key, value = parse_override(text)
        except InvalidConfig as error:
            problems += error.problems
            continue
        conf = overrides.topology if component is None else overrides.components.setdefault(component, {})
        conf[key] = value
    if problems:
        raise InvalidConfig(problems, "the command line")
    return overrides


def merged(
    topology: Topology,
    site: Mapping[str, object] | None = None,
    env: Mapping[str, object] | None = None,
    overrides: Overrides | None = None,
    *,
    local: bool = False,
    judged: bool = True,
) -> tuple[dict[str, object], dict[str, dict[str, object]]]:
    """Return the configuration of a topology and of each of its components, all layers merged.

    site: from `load_site`. env: from `environment_conf`. local: for a local cluster. judged: whether the topology must have
    what `topology.state.path` and `topology.require` ask for. Returns (the topology's configuration, {component id: the
    component's complete configuration}). Raises InvalidConfig with all problems of all layers; each problem names the source
    of its value.
    """
    site, env, overrides = site or {}, env or {}, overrides or Overrides()
    if problems := _problems(topology, site, env, overrides):
        raise InvalidConfig(problems, f"topology {topology.name!r}")
    ground = {**defaults(), **(LOCAL_DEFAULTS if local else {})}
    ground |= {**without_daemons(site), **without_daemons(env), **topology.conf}
    of_components = {
        component.id: json_copy(
            {**ground, **component.conf, **overrides.topology, **overrides.components.get(component.id, {})}
        )
        for component in topology.components
    }
    whole = json_copy({**ground, **overrides.topology})
    if local and is_auto(whole):  # there is no cluster whose folder could outlive the run
        for conf in (whole, *of_components.values()):
            conf[STATE_PATH] = None
    found = place_problems(whole)
    if judged:
        # Commands without a topology start faster without it.
        from topology_api.guarantees import requirement_problems

        found += [*epoch_problems(topology, whole), *requirement_problems(topology, whole)]
    if found:
        raise InvalidConfig(found, f"topology {topology.name!r}")
    return whole, of_components


def place_problems(conf: Mapping[str, object]) -> list[str]:
    """Return why there cannot be a store at `topology.state.path`; nothing is asked."""
    path = state_path(conf)
    if not isinstance(path, str):
        return []
    try:
        check_path(path)
    except InvalidPath as error:
        return [f"{STATE_PATH}: {error}"]
    return []


def _problems(
    topology: Topology, site: Mapping[str, object], env: Mapping[str, object], overrides: Overrides
) -> list[str]:
    problems = _labelled(site, "daemon", "the site's file")
    problems += _labelled(env, "daemon", "the environment")
    problems += _labelled(topology.conf, "topology", "the topology's conf")
    for component in topology.components:
        problems += _labelled(component.conf, "component", f"the conf of {component.kind} {component.id!r}")
    problems += _labelled(overrides.topology, "topology", "-o")
    known = [component.id for component in topology.components]
    for name, conf in overrides.components.items():
        if name in known:
            problems += _labelled(conf, "component", f"-o {name}:...")
        else:
            near = nearest(name, known) or f" (there are: {listed(known)})"
            problems.append(f"-o {name}:...: there is no component {shown(name)}{near}")
    return problems
