"""Requests that are refused, by name: (method, path, body, headers; None: the operators' token).

Must not know: how they are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.frozen.current_http import submission

API: Final = "/api/v1"
WORDS: Final = f"{API}/topologies/words"
Request = tuple[str, str, Any, "Mapping[str, str] | None"]


def _described(**changes: Any) -> dict[str, Any]:
    """A submission with another description."""
    body = submission()
    return {**body, "description": {**body["description"], **changes}}


def _without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in submission().items() if name not in names}


def _reports(report: Any) -> dict[str, Any]:
    return {"reports": [report]}


#: The description of a component.
_SPOUT: Final[dict[str, Any]] = submission()["description"]["components"][0]
#: Submissions, each wrong in its own way.
_SUBMITTED: Final[dict[str, Any]] = {
    "nothing is submitted": None,
    "an empty submission": {},
    "a list is submitted": [],
    "a text is submitted": "words",
    "a name that is taken": submission(),
    "no key": _without("submission"),
    "no description and no versions": _without("description", "python", "cloudpickle"),
    "a word too many": submission(colour="red"),
    "wrong types": submission(active=1, replace="no", files=[], pickles=[], conf=None, wait_secs="soon"),
    "an empty key": submission(submission=""),
    "a long key": submission(submission="x" * 1000),
    "no base64": submission(pickles={"lines": "*", "count": "x"}),
    "pickles that are no texts": submission(pickles={"lines": 1, "count": None}),
    "a pickle too few": submission(pickles={}),
    "a pickle too many": submission(pickles={**submission()["pickles"], "nothing": ""}),
    "another format": _described(format=2),
    "no format": _described(format=None),
    "no name": _described(name=None),
    "a name that may be none": _described(name="a\nb"),
    "no components": _described(components=[]),
    "components that are none": _described(components=[1, None, {}]),
    "a parallelism that is true": _described(components=[{**_SPOUT, "parallelism": True}]),
    "an option of another kind": submission(conf={"topology.workers": "many"}),
    "no workers": submission(conf={"topology.workers": 0, "topology.message.timeout.secs": -1}),
    "an unknown option": submission(conf={"topology.wrokers": 1}),
    "an option of daemons": submission(conf={"nimbus.host": "h", "topology.workers": 1}),
    "a configuration of nobody": submission(component_confs={"nobody": {}}),
    "a component's wrong option": submission(component_confs={"lines": {"topology.max.spout.pending": "x"}}),
    "another Python": submission(python="2.7"),
    "another cloudpickle": submission(cloudpickle="0.1"),
    "versions that are none": submission(python="x", cloudpickle=3),
    "a file that is not there": submission(files={"code": "0" * 64}),
    "a file of no kind": submission(files={"music": "0" * 64}),
    "a file without a digest": submission(files={"code": "x"}),
    "a wait too long": submission(replace=True, wait_secs=10**12),
    "too many tasks": submission(description={**submission()["description"], "conf": {"topology.workers": 10**9}}),
}  # fmt: skip
READS: Final[dict[str, Request]] = {
    **{
        f"nobody's {what}": ("GET", f"{API}/topologies/nobody{what}", None, None)
        for what in ("", "/workers", "/errors", "/counters", "/configuration", "/components/lines", "/workers/w1/log")
    },
    "no such component": ("GET", f"{WORDS}/components/nothing", None, None),
    "errors of no component": ("GET", f"{WORDS}/errors?component=nothing", None, None),
    "log of no worker": ("GET", f"{WORDS}/workers/w99/log", None, None),
    "no such file": ("GET", f"{API}/files/{'0' * 64}", None, None),
    "no digest": ("GET", f"{API}/files/{'Z' * 64}", None, None),
    "a digest that is too short": ("HEAD", f"{API}/files/abc", None, None),
    "no such page": ("GET", f"{API}/nothing", None, None),
    "no page at all": ("GET", "/", None, None),
    "a slash too many": ("GET", f"{API}/topologies/", None, None),
    "a word too many in the query": ("GET", f"{WORDS}?colour=red", None, None),
    "two wrong words in the query": ("GET", f"{WORDS}/workers/w1/log?offset=soon&limit=0&file=secrets", None, None),
    "a wrong method": ("PATCH", f"{API}/topologies", None, None),
    "another wrong method": ("DELETE", "/health", None, None),
    "no token": ("GET", f"{API}/topologies", None, {}),
    "a wrong token": ("GET", f"{API}/topologies", None, {"Authorization": "Bearer wrong"}),
    "another scheme": ("GET", f"{API}/topologies", None, {"Authorization": "Basic eDp5"}),
    "an unknown daemon": ("GET", f"{API}/files/{'0' * 64}", None, {"Authorization": "Squall-Daemon s9:abc"}),
    "a daemon with a wrong token": ("GET", f"{API}/files/{'0' * 64}", None, {"Authorization": "Squall-Daemon s1:abc"}),
    "a page of no token": ("GET", f"{API}/nothing", None, {}),
}  # fmt: skip

COMMANDS: Final[dict[str, Request]] = {
    **{
        f"{what} of nobody": (method, f"{API}/topologies/nobody{path}", None, None)
        for what, method, path in (
            ("kill", "DELETE", ""), ("activate", "POST", "/activate"), ("deactivate", "POST", "/deactivate"),
            ("rebalance", "POST", "/rebalance"),
        )
    },
    "drain of nobody": ("POST", f"{API}/supervisors/s9/drain", None, None),
    "a wait that is none": ("DELETE", f"{WORDS}?wait_secs=soon", None, None),
    "a wait below zero": ("DELETE", f"{WORDS}?wait_secs=-1", None, None),
    "a wait without end": ("DELETE", f"{WORDS}?wait_secs=inf", None, None),
    "a rebalance to no workers": ("POST", f"{WORDS}/rebalance", {"workers": 0}, None),
    "a rebalance to half a worker": ("POST", f"{WORDS}/rebalance", {"workers": 1.5}, None),
    "a rebalance to a text": ("POST", f"{WORDS}/rebalance", {"workers": "2", "parallelism": [], "wait_secs": None}, None),
    "a rebalance of nothing": ("POST", f"{WORDS}/rebalance", {"parallelism": {"nothing": 2, "count": 0}}, None),
    "a rebalance to true": ("POST", f"{WORDS}/rebalance", {"parallelism": {"count": True}}, None),
    "a rebalance with more": ("POST", f"{WORDS}/rebalance", {"colour": "red", "size": 1}, None),
    "a rebalance by a list": ("POST", f"{WORDS}/rebalance", [], None),
    "a rebalance whose wait is too long": ("POST", f"{WORDS}/rebalance", {"wait_secs": 10**12}, None),
    "an activation with more": ("POST", f"{WORDS}/activate", {"a": 1}, None),
    "no JSON": ("POST", f"{WORDS}/activate", b"no JSON", None),
    "JSON that is no JSON": ("POST", f"{WORDS}/activate", b'{"a": NaN}', None),
    "no text": ("POST", f"{WORDS}/activate", b"\xff\xfe\xfd", None),
    "too deep": ("POST", f"{WORDS}/activate", b"[" * 101 + b"]" * 101, None),
    "a body that is too long": ("POST", f"{WORDS}/activate", b" " * (1024 * 1024 + 1), None),
    "an operator's report": ("POST", f"{API}/supervisors/s1/reports", {"reports": []}, None),
}  # fmt: skip

SUBMISSIONS: Final[dict[str, Request]] = {
    name: ("POST", f"{API}/topologies", body, None) for name, body in _SUBMITTED.items()
}
#: A report as a supervisor sends it: the record as stored.
_REPORT: Final[dict[str, Any]] = {
    "kind": "WorkerReport", "format": 5, "worker": "w9", "incarnation": [1, 0], "opened": True, "ended": False,
    "drained": False, "stopped": False, "crash": None, "address": ["a", "b"], "finished": [1], "version": 1, "note": None,
    "waits": False,
}  # fmt: skip
_COUNTED: Final[dict[str, Any]] = {
    "topology_id": "words-1-1",
    "worker": "w1",
    "incarnation": [1, 0],
    "counters": {},
}
REPORTED: Final[dict[str, Any]] = {
    "nothing": {},
    "no body": None,
    "a worker that is not wanted": {"reports": [{"topology": "words", "report": _REPORT}]},
    "a topology that is not there": {"reports": [{"topology": "nobody", "report": _REPORT}]},
    "counters of nobody": {"counters": [_COUNTED]},
    "no counters": {"counters": [{**_COUNTED, "counters": {"format": 7}}]},
    "counters of no incarnation": {"counters": [{**_COUNTED, "incarnation": [1, True]}]},
    "counters with too much": {"counters": [{**_COUNTED, "more": 1}]},
    "a report of another format": {"reports": [{"topology": "words", "report": {**_REPORT, "format": 4}}]},
    "a report with more": {"reports": [{"topology": "words", "report": {**_REPORT, "more": 1}}]},
    "a report with less": {"reports": [{"topology": "words", "report": {"kind": "WorkerReport"}}]},
    "a report that is none": {"reports": [{"topology": "words", "report": []}]},
    "no report": {"reports": [{}]},
    "reports that are none": {"reports": [1], "counters": "x"},
    "a word too many": {"more": []},
    "a list": [],
}
REFUSED: Final[dict[str, Request]] = {**READS, **COMMANDS, **SUBMISSIONS}
