"""Checks where Spark is to run, with which settings, and which paths it must reach, without Spark.

For sinks, whose topology is being built, and for commands.
Must not know: sessions, file systems, what is done at a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from squall_io.spark.session.request import SessionRequest, master_problem
from squall_io.spark.stores.opening import UNSAFE, WEBHDFS, reading_problem, setting_problems, writing_problem
from topology_api.wording import nearest, typed


def settings_in(conf: Mapping[object, object], problems: list[str]) -> dict[str, str]:
    """Return settings as Spark takes them; add a sentence to `problems` for each that is invalid."""
    settings: dict[str, str] = {}
    for name, value in conf.items():
        if not isinstance(name, str) or not name.startswith(("spark.", "squall.")):
            near = nearest(str(name), (WEBHDFS, UNSAFE))
            problems.append(
                f"conf has {typed(name)}: its names begin with 'spark.' (Hadoop's with 'spark.hadoop.'){near}"
            )
        elif isinstance(value, bool):
            settings[name] = "true" if value else "false"
        elif isinstance(value, (str, int, float)):
            settings[name] = str(value)
        else:
            problems.append(
                f"conf has for {name!r} a {type(value).__name__}: give text, a number, True or False"
            )
    return settings


def place_problems(
    master: str | None,
    conf: Mapping[str, str],
    *,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
) -> Iterator[str]:
    """Yield what is wrong with where Spark runs, and with paths in normal form that it reads or writes; a sentence each."""
    request = SessionRequest.of(master, conf)
    problem = master_problem(request.where)
    if problem is not None:
        yield problem
    yield from setting_problems(conf)
    for paths, check, verb in ((reads, reading_problem, "read"), (writes, writing_problem, "written to")):
        for path in paths:
            problem = check(path, conf, request.is_connect)
            if problem is not None:
                yield f"path {path!r} cannot be {verb}: {problem}"
