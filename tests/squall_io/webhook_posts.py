"""Requests to an HttpSpout, and a topology that keeps what it emits in a file."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

from squall_io.http import HttpSpout
from tests.zookeeper_servers import eventually
from topology_api import Bolt, Topology, TopologyBuilder, Tuple


def post(port: int, body: bytes, path: str = "/hooks", **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Send a request; return status, answer and headers; status 0: no answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=20) as answer:
            return answer.status, json.load(answer), dict(answer.headers.items())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error), {k.lower(): v for k, v in error.headers.items()}
    except (OSError, HTTPException):
        return 0, None, {}


class Keep(Bolt):
    """Appends each tuple to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def execute(self, tup: Tuple) -> None:
        with self.path.open("a") as file:
            file.write(f"{json.dumps(tup.values, default=str)}\n")


def kept(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keeping(spout: HttpSpout, path: Path) -> Topology:
    builder = TopologyBuilder("hooks")
    builder.set_spout("hooks", spout)
    builder.set_bolt("keep", Keep(path)).shuffle_grouping("hooks")
    return builder.build()


def accepted(port: int, body: bytes, **headers: str) -> str:
    """Send until it is answered 202; return the id."""
    answers: list[Any] = []

    def sent() -> bool:
        answers.append(post(port, body, **headers))
        return bool(answers[-1][0] == 202)

    eventually(sent, 60, every=0.05)
    return str(answers[-1][1]["id"])
