"""HttpSpout whose requests are stored on S3: a successor on another host emits what was answered 202."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster import LocalCluster
from squall_io.http import HttpSpout
from tests.port_ranges import free_range
from tests.s3_servers import S3Server
from tests.squall_io.webhook_posts import accepted, keeping, kept
from tests.zookeeper_servers import eventually


@pytest.mark.slow
def test_a_successor_on_another_host_emits_what_was_answered(
    s3: S3Server, s3_path: str, tmp_path: Path
) -> None:
    spout = HttpSpout(s3_path, port=(port := free_range(1)[0]), s3_endpoint=s3.url)
    with LocalCluster() as first:
        first.submit(keeping(spout, tmp_path / "first"))
        accepted(port, b"1")
        eventually(lambda: kept(tmp_path / "first"), 30)
        first.deactivate("hooks")
        accepted(port, b"2")
        s3.freeze()
        s3.thaw()
        accepted(port, b"3")
    assert kept(tmp_path / "first") == [[1]]
    with LocalCluster() as second:
        second.submit(keeping(spout, tmp_path / "second"))
        eventually(lambda: sorted(kept(tmp_path / "second"))[-2:] == [[2], [3]], 30)
