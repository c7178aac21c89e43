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
