"""The example of accounts keeps its promise while its workers are killed: each entry once, each balance exact."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from local_cluster import LocalCluster
from tests.accounts_ledger import (
    CONF,
    EXAMPLES,
    assert_exact,
    entries,
    kill_one,
    number_of_entries,
    write_transfers,
)
from tests.local_cluster.words_with_state import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example, as its user imports it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module("accounts")
    sys.modules.pop("accounts", None)


def test_each_balance_is_exact_whichever_worker_is_killed(tmp_path: Path, accounts: ModuleType) -> None:
    transfers, database, kills = tmp_path / "transfers.txt", tmp_path / "accounts.sqlite", 0
    wanted = write_transfers(transfers, 15_000)
    with LocalCluster(processes=True) as cluster:
        cluster.submit(accounts.topology(str(transfers), str(database), str(tmp_path / "state")), CONF)
        while cluster.last_status("accounts").state == "ACTIVE" and kills < 8:
            before = number_of_entries(database)
            eventually(
                lambda before=before: (  # type: ignore[misc]
                    number_of_entries(database) > before or cluster.last_status("accounts").state != "ACTIVE"
                )
            )
            kills += kill_one(cluster, kills % 3)
        cluster.wait("accounts", 120)
    assert kills >= 3, "the topology was faster than the kills: give it more transfers"
    assert_exact(entries(database), 15_000, wanted)
