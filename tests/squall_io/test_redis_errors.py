"""What errors of redis-py mean: what passes by itself, and what does not."""

from __future__ import annotations

import pytest

from squall_io.redis import RedisStreamSpout
from squall_io.redis.connection import RedisAway, RedisRefused, meaning_of
from topology_api import InvalidConfig

exceptions = pytest.importorskip("redis").exceptions


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("because of: READONLY You can't write against a read only replica.", RedisAway),
        ("because of: MISCONF Redis is configured to save RDB snapshots", RedisAway),
        ("because of: NOPERM User app has no permissions to run the 'set' command", RedisRefused),
        ("because of previous errors.", RedisRefused),
    ],
)
def test_a_transaction_that_the_server_discards(reason: str, kind: type[Exception]) -> None:
    error = exceptions.ExecAbortError(f"Transaction discarded {reason}")
    assert type(meaning_of(error, "Redis at redis://h")) is kind


@pytest.mark.parametrize(
    "url",
    [
        "redis://app:hunter2@h:6379/0",
        "redis://app:pa/hunter2@h:6379/0",
        "redis://app:pa?hunter2@h:6379/0",
        "redis://app:pa#hunter2@h:6379/0",
        "redis:/app:hunter2@h:6379/0",
        "app:hunter2@h:6379",
        "http://app@h/0?password=hunter2",
        "redis:///0?password=hunter2",
        "redis://h/a?password=hunter2",
        "redis+sentinel://s1?password=hunter2",
        "unix://?password=hunter2",
        "redis://app/hunter2@h",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidConfig, match="url") as found:
        RedisStreamSpout("orders", url=url)
    assert "hunter2" not in str(found.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://h/0?ssl_ca_certs=/ca.pem", "'ssl_ca_certs', which is for TLS: begin it with rediss"),
        ("unix:///run/redis.sock?ssl_cert_reqs=none", "'ssl_cert_reqs', which is for TLS"),
        ("redis+sentinel://s/main?ssl_certfile=/c.pem", "'ssl_certfile', which is for TLS"),
        ("rediss://h?ssl_check_hostname=maybe", "ssl_check_hostname=maybe: give true or false"),
        ("rediss://h?ssl_cert_reqs=some", "ssl_cert_reqs=some: give required or optional or none"),
        ("redis://h:70000", "whose host or port is none"),
        ("redis+sentinel://s:26379,t:0/main", "whose host or port is none"),
        ("redis://[x", "url is no URL"),
    ],
)
def test_an_address_that_no_client_takes_is_refused(url: str, problem: str) -> None:
    with pytest.raises(InvalidConfig) as found:
        RedisStreamSpout("orders", url=url)
    assert problem in str(found.value)
    RedisStreamSpout("orders", url="rediss://h:65535?ssl_check_hostname=false&ssl_cert_reqs=none&db=3")
