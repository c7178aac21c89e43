"""A configuration is shown without its secrets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.security.redaction import HIDDEN, is_secret, redacted, redacted_text
from squall.security.tokens import OPTION
from topology_api.options import OPTIONS, defaults

CANARY = "c4n4ry"
SECRET_KEYS = [
    "password", "db.password", "DB_PASSWORD", "kafka.sasl.password", "passwd", "passphrase", "secret", "client-secret",
    "aws_secret_access_key", "accessKey", "apiKey", "apikey", "API_KEY", "token", "authToken", "slack.bot.tokens", "key",
    "private.key", "privatekey", "tls.privateKey", "sshkey", "AccountKey", "accountkey", "partition_key_secret",
    "credentials", "google.credential", "Authorization", "dbpassword", "mysecret", "x.pwd", "HTTPAuthToken",
]  # fmt: skip
PLAIN_KEYS = [
    "partition_key", "partitionKey", "partitionkey", "kafka.message.key", "sort-keys", "PUBLIC_KEY", "hockey",
    "topology.workers", "monkey", "keyboard", "keystone.url", "compass", "author", "passenger.count", "broker", "turkey.size",
]  # fmt: skip


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_a_key_that_mentions_a_secret_hides_its_value_at_any_depth(key: str) -> None:
    for value in (CANARY, [CANARY], {"a": CANARY}, 12345, 1.5):
        conf = {key: value, "outer": {"inner": [{key: value, "rest": 1}]}}
        shown = redacted(conf)
        assert shown == {key: HIDDEN, "outer": {"inner": [{key: HIDDEN, "rest": 1}]}}
        assert CANARY not in json.dumps(shown)


@pytest.mark.parametrize("key", PLAIN_KEYS)
def test_other_keys_are_shown(key: str) -> None:
    assert not is_secret(key)
    assert redacted({key: CANARY}) == {key: CANARY}


def test_the_presence_of_a_secret_is_visible() -> None:
    assert redacted({"password": None, "use.token": True}) == {"password": None, "use.token": True}


def test_our_own_options_are_shown_since_they_contain_paths_and_no_secrets() -> None:
    conf = {**defaults("daemon"), OPTION: "/etc/squall/token"}
    assert redacted(conf) == conf
    assert not any(is_secret(name) for name in OPTIONS)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://host:6627", "http://host:6627"),
        ("http://host:6627/a@b?c=d", "http://host:6627/a@b?c=d"),
        ("https://u:c4n4ry@host/path", f"https://{HIDDEN}@host/path"),
        ("redis://:c4n4ry@host:6379/0", f"redis://{HIDDEN}@host:6379/0"),
        ("amqp://u:p@c4n4ry@host", f"amqp://{HIDDEN}@host"),
        ("amqp://u:c4n4ry/x@host", f"amqp://{HIDDEN}@host"),
        ("see a://u:c4n4ry@h and b+c://c4n4ry@h", f"see a://{HIDDEN}@h and b+c://{HIDDEN}@h"),
        ("http://h/?a=1&token=c4n4ry&b=2", f"http://h/?a=1&token={HIDDEN}&b=2"),
        ("host=h password=c4n4ry user=u", f"host=h password={HIDDEN} user=u"),
        ("host=h;Password = 'c4n4ry x';user=u", f"host=h;Password = {HIDDEN};user=u"),
        ("jdbc:mysql://h/db?user=u&password=c4n4ry", f"jdbc:mysql://h/db?user=u&password={HIDDEN}"),
        ("an ordinary text: 3 = 3, me@example.org", "an ordinary text: 3 = 3, me@example.org"),
    ],
)
def test_values_that_usually_carry_credentials_are_hidden_in_a_text(text: str, shown: str) -> None:
    assert redacted_text(text) == shown
    assert redacted({"sink": [text]}) == {"sink": [shown]}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=8
    )
)
def test_any_configuration_can_be_shown_without_changing_it(value: object) -> None:
    conf = {"user.setting": value, "user.password": value}
    before = json.dumps(conf)
    json.dumps(redacted(conf))
    assert json.dumps(conf) == before


def test_the_time_for_a_long_text_grows_only_with_its_length() -> None:
    for text in ("a://" * 5_000, "a" * 100_000, "x=" * 50_000, "a://b:" + "c" * 50_000, "Aa" * 50_000):
        assert isinstance(redacted({text[:1000]: text})[text[:1000]], str)
