"""Which Spark session is requested, and when two requests conflict: reported without secrets."""

from __future__ import annotations

import logging
from typing import Any

from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.session.request import SessionRequest, request_conflict
from squall_io.spark.session.sessions import SessionLease, _SharedSession
from squall_io.spark.sink.settings import SinkSettings


def test_the_users_settings_come_after_ours_and_the_master_last() -> None:
    request = SessionRequest.of(
        "yarn", {"spark.master": "local", "spark.log.level": "INFO", "squall.unsafe.store": "true"}
    )
    assert request.settings["spark.master"] == "yarn"
    assert request.settings["spark.log.level"] == "INFO"
    assert "squall.unsafe.store" not in request.settings
    assert "spark.driver.host" not in request.settings
    assert SessionRequest.of(None, {"spark.master": "local[3]"}).settings["spark.driver.host"] == "127.0.0.1"
    assert SessionRequest.of(None, None).where == "local[*]"


def test_a_driver_without_executors_asks_for_a_secret_unless_the_user_says_otherwise() -> None:
    for master in (None, "local", "local[3]"):
        assert SessionRequest.of(master, None).settings["spark.authenticate"] == "true"
    for master in ("yarn", "local-cluster[1, 1, 512]", "spark://host:7077"):
        assert "spark.authenticate" not in SessionRequest.of(master, None).settings
    assert (
        SessionRequest.of("local", {"spark.authenticate": "false"}).settings["spark.authenticate"] == "false"
    )


def test_equal_requests_do_not_conflict_and_squalls_own_settings_are_ignored() -> None:
    first = SessionRequest.of("local[2]", {"spark.a": "1", "squall.webhdfs.address": "x:1"})
    assert request_conflict(SessionRequest.of("local[2]", {"spark.a": "1"}), first) is None
    assert request_conflict(SessionRequest.of(None, None), SessionRequest.of("local[*]", {})) is None


def test_another_master_or_other_settings_are_reported_with_both() -> None:
    problem = request_conflict(
        SessionRequest.of("yarn", {"spark.a": "1"}), SessionRequest.of("local[2]", {"spark.a": "2"})
    )
    assert problem is not None
    assert "with master local[2] with spark.a=2; the request is for master yarn with spark.a=1." in problem
    assert (
        request_conflict(SessionRequest.of("yarn", {}), SessionRequest.of("yarn", {"spark.a": "1"}))
        is not None
    )


def test_secrets_are_not_shown() -> None:
    request = SessionRequest.of(
        "sc://host:443/;token=hunter1",
        {"spark.hadoop.fs.s3a.secret.key": "hunter2", "spark.ssl.keyPassword": "hunter3"},
    )
    assert "hunter" not in str(request)
    assert "sc://host:443/;..." in str(request)
    assert request.where == "sc://host:443/;token=hunter1"


def test_the_reprs_of_what_holds_a_request_show_no_secrets() -> None:
    master = "sc://host:443/;token=hunter1"
    conf = {
        "spark.hadoop.fs.s3a.secret.key": "hunter2",
        "spark.hadoop.fs.defaultFS": "s3a://key:hunter3@bucket",
    }
    request = SessionRequest.of(master, conf)
    session: Any = object()
    shared = _SharedSession(request, session, owned=True)
    lease = SessionLease(shared, logging.getLogger(__name__), lambda: None)
    settings = SinkSettings("/t", parse_schema("a int"), "parquet", (), None, master, conf)
    assert "hunter" not in repr((request, shared, lease, settings))


def test_two_leases_of_one_session_differ_and_are_hashable() -> None:
    session: Any = object()
    shared = _SharedSession(SessionRequest.of(None, None), session, owned=True)
    leases = [SessionLease(shared, logging.getLogger(__name__), print) for _ in range(2)]
    assert len(set(leases)) == 2
