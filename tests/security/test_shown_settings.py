"""`squall config` can be shared: its output contains no secret, whichever layer it comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from squall.security.redaction import HIDDEN
from squall_cli.main import squall

CANARY = "c4n4ry"


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_settings_are_shown_without_their_secrets(more: tuple[str, ...], tmp_path: Path) -> None:
    site = tmp_path / "squall.yaml"
    site.write_text(
        f"db.password: {CANARY}\ndb.url: postgres://app:{CANARY}@db.example/app\ndb.host: db.example\n"
    )
    overrides = ("-o", f"my.token={CANARY}", "-o", f"count:api.key={CANARY}")
    done = CliRunner().invoke(squall, ["config", "--config", str(site), *overrides, *more])
    assert done.exit_code == 0, done.output
    assert CANARY not in done.output
    assert "db.example" in done.output and "squall.zookeeper.credentials.file" in done.output
    if more:
        shown = json.loads(done.output)
        assert {shown[name]["value"] for name in ("db.password", "my.token", "count:api.key")} == {HIDDEN}
