"""What errors of redis-py mean: what passes by itself, and what does not."""

from __future__ import annotations

import pytest

from squall_io.redis.connection import RedisAway, RedisRefused, meaning_of

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
