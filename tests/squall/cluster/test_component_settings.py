"""Components' settings are stored as differences from the topology's, and come back as they were."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from squall.cluster.component_settings import differences, merged
from topology_api.options import OPTIONS, defaults

#: Values that Python or a reader could confuse.
VALUES = st.sampled_from(
    [0, 0.0, -0.0, False, 1, 1.0, True, None, "", "1", [], [1], [True], {}, {"a": 1}, {"a": 1.0}]
)
CONFS = st.dictionaries(st.sampled_from([*sorted(OPTIONS)[:3], "mine", "yours"]), VALUES)


def text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@given(CONFS, st.dictionaries(st.text(max_size=3), CONFS, max_size=3))
def test_what_is_stored_for_components_gives_all_their_settings(
    conf: dict[str, Any], own: dict[str, dict[str, Any]]
) -> None:
    whole = merged(conf, own)
    stored = differences(conf, whole)
    assert text(merged(conf, stored)) == text(whole)
    assert all(
        key not in conf or text(value) != text(conf[key])
        for each in stored.values()
        for key, value in each.items()
    )


def test_no_default_is_repeated() -> None:
    conf = json.loads(json.dumps(defaults()))
    assert differences(conf, {"lines": json.loads(json.dumps(conf)), "count": {**conf, "own": 1}}) == {
        "lines": {},
        "count": {"own": 1},
    }
