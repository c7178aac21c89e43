"""An error as a label of a metric is short, and the same for all tuples that fail alike."""

from __future__ import annotations

import pytest

from nimbus.http.error_labels import MOST_LABEL, error_label


@pytest.mark.parametrize(
    ("error", "label"),
    [
        ("Away: no answer to 231 (/x/orders.py:17, in execute)", "Away: no answer to # (orders.py:17, in execute)"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "ConnectionRefusedError: [Errno #] Connection refused"),
        ("KeyError: 'order-7 of \"me\"'", "KeyError: #"),
        ("OperationalError: db1.example.org:5432 is away", "OperationalError: # is away"),
        ("NotCommitted: a.1.7 is not in hdfs://n:9000/t: no permission", "NotCommitted: # is not in #: no permission"),
        ("no reason given", "no reason given"),
        ("bad\nline\udc80\x00", "bad line??"),
        ("", ""),
    ],
)  # fmt: skip
def test_values_are_left_out_and_the_place_is_kept(error: str, label: str) -> None:
    assert error_label(error) == label


def test_a_label_is_bounded() -> None:
    long = error_label("Away: " + "no answer " * 100 + "(/x/" + "y" * 500 + ".py:17, in execute)")
    assert len(long) <= 2 * MOST_LABEL + 3
    assert len(error_label("7 (" * 1000)) <= MOST_LABEL
