"""The options table: every configuration key of Squall, with type, default, unit, scope and text.

One table validates all layers of settings (squall/settings.py); `scripts/reference_pages.py` writes `conf/defaults.yaml` and
the reference page from the table. An option that Storm has too has Storm's name. Must not know: where values come from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from topology_api import storm_options
from topology_api.own_values import json_problem
from topology_api.state_places import AUTO, path_problem, webhdfs_problem
from topology_api.values import MAX_SECONDS, number_problem
from topology_api.wording import nearest, shown, typed

Scope = Literal["topology", "component", "both", "daemon"]
Check = Callable[[object], "str | None"]

# Keys with these prefixes are Squall's and must be in the table; all others are the user's own.
PREFIXES = ("topology.", "nimbus.", "supervisor.", "squall.", "storm.")
#: The most key groups: each sender has a list of this length for each stream into a stateful bolt.
MAX_GROUPS = 32_768
MAX_WORKERS = 65_535  # task ids have 16 bits, and a worker without a task is of no use
_MAX_TUPLES = 100_000_000


# The place where a configuration is set -> the scopes of the options that are allowed there.
_ALLOWED: dict[Scope, tuple[Scope, ...]] = {
    "topology": ("topology", "component", "both"),
    "component": ("component", "both"),
    "both": ("both",),
    "daemon": ("topology", "component", "both", "daemon"),
}
_NOT_HERE: dict[Scope, str] = {
    "topology": "can be set for the whole topology only, not for a component",
    "component": "can be set for a component only",
    "both": "cannot be set here",
    "daemon": "is an option of the daemons: set it in the site's file",
}


@dataclass(frozen=True)
class Option:
    """One configuration key.

    types: the Python types of its values. scope: where the key may be set: `topology` (for the whole topology
        only), `both` (for a component as well), `component`, or `daemon`. problem: returns the problem with a value (type, unit
        or range), or None.
    """

    name: str
    types: tuple[type, ...]
    default: object
    unit: str
    scope: Scope
    text: str
    problem: Check


def _seconds(*, above: bool = True) -> Check:
    return _number("seconds", MAX_SECONDS, above=above)


def _number(unit: str, high: float, *, above: bool = False) -> Check:
    return partial(number_problem, low=0, high=high, unit=unit, above=above)


def _whole(low: int, high: int, unit: str) -> Check:
    def check(value: object) -> str | None:
        if type(value) is int and low <= value <= high:
            return None
        found = shown(value) if type(value) is int else typed(value)
        return f"is {found}: give a whole number of {unit} from {low} to {high}"

    return check


def _or_null(check: Check, meaning: str) -> Check:
    def check_or_null(value: object) -> str | None:
        problem = None if value is None else check(value)
        return problem and f"{problem}, or null for {meaning}"

    return check_or_null


def _truth(value: object) -> str | None:
    return None if isinstance(value, bool) else f"is {typed(value)}: give true or false"


def _one_of(*choices: str) -> Check:
    def check(value: object) -> str | None:
        if isinstance(value, str) and value in choices:
            return None
        near = nearest(value, choices) if isinstance(value, str) and len(choices) > 1 else ""
        return f"is {shown(value)}: give {' or '.join(map(repr, choices))}{near}"

    return check


def _text(value: object) -> str | None:
    if value is None or (isinstance(value, str) and value and value.isprintable()):
        return None
    return f"is {shown(value)}: give a text, or null for none"


def port_range(text: str) -> range | None:
    """Return the ports in a text such as 6700-6799, including both ends; None for any other text."""
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", text)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    return range(first, last + 1) if 1 <= first < last <= 65_535 else None


def _ports(value: object) -> str | None:
    if value is None or (isinstance(value, str) and port_range(value) is not None):
        return None
    return f"is {shown(value)}: give the first and the last port (such as 6700-6799), or null for any port"


def _class_paths(value: object) -> str | None:
    if not isinstance(value, (list, tuple)):
        return f"is {typed(value)}: give a list of 'package.module:Class'"
    for path in value:
        module, _, name = path.partition(":") if isinstance(path, str) else ("", "", "")
        if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
            return f"holds {shown(path)}: each hook is written as 'package.module:Class'"
    return None


_TABLE = (
    Option(
        "topology.workers", (int,), 1, "workers", "topology",
        "How many workers the topology's tasks are spread over.",
        _whole(1, MAX_WORKERS, "workers"),
    ),
    Option(
        "topology.max.spout.pending", (int, type(None)), 1000, "tuple trees", "both",
        "How many trees of a spout task may be open; at the limit next_tuple is not called. As many more may wait for their "
        "replay, or 10 while failures have no verdict (topology.on.outage). Null: no limit.",
        _or_null(_whole(1, _MAX_TUPLES, "tuple trees"), "no limit"),
    ),
    Option(
        "topology.message.timeout.secs", (int, float), 30, "seconds", "topology",
        "A tree without activity for this long fails. A kill waits at most this long for the topology to drain.",
        _seconds(),
    ),
    Option(
        "topology.enable.message.timeouts", (bool,), True, "", "topology",
        "False: trees never time out.",
        _truth,
    ),
    Option(
        "topology.tick.tuple.freq.secs", (int, float, type(None)), None, "seconds", "both",
        "The time between calls of a bolt's tick(), for bolts without their own tick_interval. Null: never.",
        _or_null(_seconds(), "none"),
    ),
    Option(
        "topology.debug", (bool,), False, "", "both",
        "Check each emission and log it: slow, for development.",
        _truth,
    ),
    Option(
        "topology.worker.timeout.secs", (int, float), 30, "seconds", "topology",
        "A worker without a heartbeat for this long is considered dead and is replaced.",
        _seconds(),
    ),
    Option(
        "topology.auto.task.hooks", (list,), (), "", "both",
        "Task hooks: the names of subclasses of Hook, each written 'package.module:Class'.",
        _class_paths,
    ),
    Option(
        "topology.acking", (bool,), True, "", "topology",
        "False: trees are not tracked; each message id is acked as soon as it is emitted.",
        _truth,
    ),
    Option(
        "topology.on.error", (str,), "fail", "", "both",
        "What an exception in user code does: 'fail' fails the tuple, 'crash' stops the topology.",
        _one_of("fail", "crash"),
    ),
    Option(
        "topology.on.outage", (str,), "wait", "", "both",
        "What failures count against a tuple of a spout (see Replay). 'wait': only those of a bolt task that works for other "
        "tuples; while it works for none, it is down and its tuples wait. 'give-up': every failure; the default of "
        "squall run, local clusters and tests.",
        _one_of("wait", "give-up"),
    ),
    Option(
        "topology.outage.give.up.secs", (int, float, type(None)), 3600, "seconds", "both",
        "With topology.on.outage 'wait': how long a tuple is tried again when its bolt task works for no other tuple, and too "
        "few tuples fail to show that the task is down. Null: without end.",
        _or_null(_seconds(), "no end"),
    ),
    Option(
        "topology.state.path", (str, type(None)), AUTO, "", "topology",
        "Where the state of the topology is kept: file:///folder, which all hosts of its workers must share, or "
        "hdfs://host:port/folder. A topology that starts again with this path goes on from its last commit. Null: state is in "
        "memory, and ends with its worker. Auto: if the topology has a StatefulBolt, a TokenSink or a StagedSink other than "
        "SparkSink, a folder of the supervisor on a cluster of one host; on several hosts such a topology is refused until it "
        "names a path or null. Without a cluster, and for any other topology, auto is null.",
        _or_null(path_problem, "memory"),
    ),
    Option(
        "topology.state.webhdfs", (str, type(None)), None, "", "topology",
        "Where the NameNode of an hdfs:// topology.state.path serves WebHDFS (dfs.namenode.http-address): HOST:PORT, "
        "http://HOST:PORT or https://HOST:PORT; of several NameNodes all, with commas. Null: HDFS is reached by Java, in a JVM "
        "of each worker, for which the extra spark must be installed.",
        _or_null(webhdfs_problem, "by Java"),
    ),
    Option(
        "topology.state.groups", (int, type(None)), None, "groups", "topology",
        "With topology.state.path: into how many groups the keys of each stateful bolt are divided. A group moves as a whole, "
        "so no stateful bolt can have more tasks. Null: as many as the state has that is there, or else 1024. Fixed once "
        "something is committed: another number is refused then.",
        _or_null(_whole(1, MAX_GROUPS, "groups"), "the number of the state, or 1024"),
    ),
    Option(
        "topology.require", (str, type(None)), None, "", "topology",
        "What the topology must guarantee between each spout and each sink: 'exactly-once', or null for nothing. A topology "
        "that gives less is refused, and the error says why (see `squall explain`).",
        _or_null(_one_of("exactly-once"), "nothing"),
    ),
    Option(
        "topology.epoch.secs", (int, float, type(None)), None, "seconds", "topology",
        "How often the state at topology.state.path is committed. What happened since the last commit is done again after a "
        "failure. Null: 1 second, or, if there are staged sinks, the longest of their batch_interval.",
        _or_null(_seconds(), "the interval of the sinks"),
    ),
    Option(
        "topology.epoch.uncommitted", (int,), 1_000_000, "tuples", "both",
        "With topology.state.path: how many tuples of a spout task may wait for their commit, with or without message ids. At "
        "the limit next_tuple is not called, and the epoch ends at once.",
        _whole(1, _MAX_TUPLES, "tuples"),
    ),
    Option(
        "topology.epoch.uncommitted.mb", (int,), 500, "megabytes", "topology",
        "With topology.state.path: about how much memory each worker may use for what waits for its commit, or for being "
        "shown after it: values that spouts may have to emit again, message ids, rows of committing sinks, dead letters. At "
        "the limit all spouts pause, and the epoch ends at once.",
        _whole(1, 100_000_000, "megabytes"),
    ),
    Option(
        "topology.epoch.cycle.tuples", (int,), 100_000, "tuples", "topology",
        "With topology.state.path: how many tuples may wait for a task on an edge that closes a cycle of bolts. At the limit "
        "the spouts pause until half of them are executed; at twice the limit, further ones are dead letters.",
        _whole(1, _MAX_TUPLES, "tuples"),
    ),
    Option(
        "topology.epoch.keep", (int,), 10, "commits", "topology",
        "How many of the last commits are kept at topology.state.path.",
        _whole(1, 10_000, "commits"),
    ),
    Option(
        "topology.worker.memory.mb", (int, type(None)), None, "megabytes", "topology",
        "How much resident memory a worker process may use. At 80 % the worker's log and squall status have a warning; at "
        "100 % the worker drains and ends with this reason, at 125 % without a drain, and is started again. Null: no limit.",
        _or_null(_whole(1, 100_000_000, "megabytes"), "no limit"),
    ),
    Option(
        "topology.dead.letters.mb", (int,), 100, "megabytes", "topology",
        "How much disk the dead letters of a topology may take on one host. When it is used up, letters that a dead-letter "
        "bolt acked are removed; then the spout waits until others are resent or dropped (squall dead-letters).",
        _whole(1, 1_000_000, "megabytes"),
    ),
    Option(
        "topology.dead.letters.days", (int, float, type(None)), 7, "days", "topology",
        "How long a dead letter is kept, also after the topology is killed or replaced. Null: until it is resent or dropped.",
        _or_null(_number("days", 3650, above=True), "no end"),
    ),
    Option(
        "topology.bolt.hang.secs", (int, float), 60, "seconds", "both",
        "How long a running call of user code keeps its tuples from timing out. In a worker process, a longer call of a bolt "
        "ends the worker: its stacks are written to the worker's log, and the worker is started again. 0: in a worker process "
        "calls may take any length of time, but their tuples time out.",
        _seconds(above=False),
    ),
    Option(
        "topology.queue.size", (int,), 4096, "tuples", "both",
        "How many tuples may wait for a task.",
        _whole(16, _MAX_TUPLES, "tuples"),
    ),
    Option(
        "topology.cycle.buffer", (int,), 10_000, "tuples", "topology",
        "How many untracked tuples may wait on an edge that closes a cycle; more are dropped and counted.",
        _whole(1, _MAX_TUPLES, "tuples"),
    ),
    Option(
        "topology.transport.codec", (str,), "pickle", "", "topology",
        "How values travel between workers: pickle (any value) or msgpack (a closed set of types).",
        _one_of("pickle", "msgpack"),
    ),
    Option(
        "topology.sleep.spout.wait.strategy.time.ms", (int, float), 1, "milliseconds", "both",
        "The first wait after a next_tuple that emitted nothing.",
        _number("milliseconds", 60_000),
    ),
    Option(
        "nimbus.supervisor.timeout.secs", (int, float), 30, "seconds", "daemon",
        "A supervisor without a heartbeat for this long is considered gone, and its tasks move to other supervisors. A local "
        "cluster of worker processes needs 12 or more, because workers continue for 10 seconds without their supervisor.",
        _seconds(),
    ),
    Option(
        "nimbus.url", (str, type(None)), None, "", "daemon",
        "Where the command finds Nimbus: https://HOST:PORT, several separated by commas: all Nimbuses of the cluster, because "
        "the token is sent to no other. SQUALL_NIMBUS and --nimbus override it. Null: http://127.0.0.1:6627.",
        _text,
    ),
    Option(
        "nimbus.package.limit.bytes", (int,), 256 * 1024 * 1024, "bytes", "daemon",
        "The largest file (modules and data, or wheels) that Nimbus accepts with a topology.",
        _whole(1, 1 << 40, "bytes"),
    ),
    Option(
        "nimbus.package.unpacked.limit.bytes", (int,), 1024 * 1024 * 1024, "bytes", "daemon",
        "The largest unpacked size of a file that Nimbus accepts with a topology.",
        _whole(1, 1 << 40, "bytes"),
    ),
    Option(
        "nimbus.replace.timeout.secs", (int, float), 60, "seconds", "daemon",
        "How long the workers of a new version (submit --replace) may take to start, and how long a silent source is waited "
        "for. The previous version takes over again if they do not start, or if half of the attempts fail over 10 s. The time "
        "to build the environment is not counted.",
        _seconds(),
    ),
    Option(
        "nimbus.versions.keep", (int,), 5, "versions", "daemon",
        "How many earlier versions of a topology are kept for `squall rollback`, with their pickles in ZooKeeper (at most 4 MB "
        "each) and their files on the hosts of Nimbuses. A kill removes them. 0: none.",
        _whole(0, 100, "versions"),
    ),
    Option(
        "supervisor.worker.lease.secs", (int, float), 20, "seconds", "daemon",
        "How long workers continue without their supervisor. It must be at least 2 less than nimbus.supervisor.timeout.secs, "
        "so that no worker is still running when its tasks move to another host.",
        _seconds(),
    ),
    Option(
        "supervisor.logs.keep.days", (int, float), 7, "days", "daemon",
        "How long logs of workers are kept after their topology or version has ended, and its errors and counters (`squall "
        "logs --previous`, `squall errors --previous`). Set it for supervisors and Nimbus. 0: nothing is kept.",
        _number("days", 365),
    ),
    Option(
        "supervisor.worker.ports", (str, type(None)), None, "", "daemon",
        "The ports that workers on this host listen on, such as 6700-6799, for firewalls. A worker uses two free ports, so "
        "give at least two for each slot. Null: any free port.",
        _ports,
    ),
    Option(
        "squall.zookeeper.servers", (str, type(None)), None, "", "daemon",
        "The ZooKeeper servers, HOST:PORT separated by commas, for daemons that are started without --zookeeper.",
        _text,
    ),
    Option(
        "squall.zookeeper.root", (str,), "/squall", "", "daemon",
        "The ZooKeeper path below which this cluster keeps its state. Several clusters may share one ZooKeeper.",
        lambda value: None if isinstance(value, str) and value.startswith("/") and value.strip("/")
        and all(value[1:].split("/")) else f"is {shown(value)}: give a path such as /squall",
    ),
    Option(
        "squall.zookeeper.session.timeout.secs", (int, float), 10, "seconds", "daemon",
        "How long a daemon may be unable to reach ZooKeeper before its session ends. After that time another Nimbus becomes "
        "the leader.",
        _seconds(),
    ),
    Option(
        "squall.zookeeper.credentials.file", (str, type(None)), None, "", "daemon",
        "A file (mode 0600) with one line USER:PASSWORD, ZooKeeper's digest credentials. With it, everything that Squall "
        "writes to ZooKeeper can be read and changed only with these credentials. Without it a daemon starts only with "
        "--insecure-zookeeper, or with a server that `squall zookeeper` started for the same user on the same machine.",
        _text,
    ),
    Option(
        "squall.zookeeper.tls.ca", (str, type(None)), None, "", "daemon",
        "The file with the CA certificates (PEM) that signed the certificates of the ZooKeeper servers; no others are trusted. "
        "With this option and the next two, daemons connect to ZooKeeper by TLS only. The servers' certificates must contain "
        "the names in squall.zookeeper.servers. Null: no TLS.",
        _text,
    ),
    Option(
        "squall.zookeeper.tls.certificate", (str, type(None)), None, "", "daemon",
        "The file with the certificate (PEM, with its chain) by which daemons of this host prove to ZooKeeper that they may "
        "connect.",
        _text,
    ),
    Option(
        "squall.zookeeper.tls.key", (str, type(None)), None, "", "daemon",
        "The file (mode 0600) with the private key of squall.zookeeper.tls.certificate.",
        _text,
    ),
    Option(
        "squall.token.file", (str, type(None)), None, "", "daemon",
        "The file (mode 0600) with the operators' token of the cluster at nimbus.url in the same file (if that is not set, of "
        "a Nimbus on this host): Nimbus writes it, the command reads it. SQUALL_TOKEN_FILE overrides it. Null: a file below "
        "~/.local/state/squall.",
        _text,
    ),
    Option(
        "squall.http.unknown.per.address", (int,), 32, "connections", "daemon",
        "How many connections of one address a daemon keeps that have shown no valid credentials. For one more, the oldest of "
        "them is closed. Raise it if many clients without credentials, such as health checks, share an address.",
        _whole(1, 4096, "connections"),
    ),
    Option(
        "squall.tls.certificate", (str, type(None)), None, "", "daemon",
        "The file with the certificate (PEM, with its chain) that this host's daemons use for HTTPS.",
        _text,
    ),
    Option(
        "squall.tls.key", (str, type(None)), None, "", "daemon",
        "The file with the private key of squall.tls.certificate.",
        _text,
    ),
    Option(
        "squall.tls.ca", (str, type(None)), None, "", "daemon",
        "The file with the CA certificates (PEM) that HTTPS connections trust. Null: the system's.",
        _text,
    ),
)  # fmt: skip

OPTIONS: dict[str, Option] = {option.name: option for option in _TABLE}


def defaults(scope: Scope = "topology") -> dict[str, object]:
    """Return, as a new dict, the defaults of all options that may be set for a `topology` or for a whole site (`daemon`)."""
    return {
        name: list(d) if isinstance(d := option.default, tuple) else d
        for name, option in OPTIONS.items()
        if option.scope in _ALLOWED[scope]
    }


def problems_of(conf: object, scope: Scope = "topology") -> list[str]:
    """Return all problems of a configuration that is set for a `topology`, a `component`, or a whole site (`daemon`).

    Squall's own keys must be in the table, fit the scope, and have a value of the right type, unit and range;
    other keys are the user's own and may have any value that JSON has.
    """
    if not isinstance(conf, Mapping):
        return [f"the configuration is {typed(conf)}: give a dict from keys to values"]
    return [problem for key, value in conf.items() if (problem := _problem_of(key, value, scope)) is not None]


def json_copy(conf: Mapping[str, object]) -> dict[str, object]:
    """Return a deep copy of a valid configuration, in the form that it has after a round trip through JSON (tuples become
    lists)."""
    return {key: _json_copy(value) for key, value in conf.items()}


def without_daemons(conf: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration without the options of daemons, which a site's file may also hold."""
    return {key: value for key, value in conf.items() if key not in OPTIONS or OPTIONS[key].scope != "daemon"}


def _json_copy(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_json_copy(part) for part in value]
    if isinstance(value, Mapping):
        return {key: _json_copy(part) for key, part in value.items()}
    return value


def _problem_of(key: object, value: object, scope: Scope) -> str | None:
    if not isinstance(key, str) or not key:
        return f"configuration key {shown(key)} is not a name: give a non-empty str"
    if (option := OPTIONS.get(key)) is not None:
        if option.scope not in _ALLOWED[scope]:
            return f"{key!r} {_NOT_HERE[option.scope]}"
        problem = option.problem(value)
        return None if problem is None else f"{key!r} {problem}"
    if (instead := storm_options.instead_of(key)) is not None:
        return f"unknown configuration key {key!r}: it is Storm's; {instead}"
    if key.startswith(PREFIXES) or _is_typo(key):
        return f"unknown configuration key {key!r}{nearest(key, OPTIONS)}"
    problem = json_problem(value)
    return None if problem is None else f"{key!r} {problem}"


def _is_typo(key: str) -> bool:
    """Return whether a user's key looks like one of Squall's with a typo in its first word: `topolgy.workers`."""
    import difflib

    head = key.lower().split(".")[0] + "."
    if not difflib.get_close_matches(head, PREFIXES, n=1, cutoff=0.8):
        return False
    return bool(difflib.get_close_matches(key.lower(), OPTIONS, n=1, cutoff=0.85))
