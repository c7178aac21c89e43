"""Writes conf/defaults.yaml and the table of options for docs/options.md, from the options table of topology_api.

`scripts/reference_pages.py` calls it. Must not know: where values of options come from.
"""

from __future__ import annotations

import json
import textwrap

from topology_api.options import OPTIONS, Option, defaults

KINDS = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    list: "list",
    type(None): "null",
}
SCOPES = {
    "topology": "the whole topology",
    "component": "a component",
    "both": "the whole topology, or a component",
    "daemon": "the daemons of a site",
}


def kind_of(option: Option) -> str:
    kinds = [KINDS[kind] for kind in option.types]
    if "number" in kinds:
        kinds.remove("whole number")
    kinds[0] += f" of {option.unit}" if option.unit else ""
    return " or ".join(kinds)


def defaults_yaml() -> str:
    """Return the text of conf/defaults.yaml: every option with its default, documented."""
    lines = [
        "# Every option of Squall with its default. Written from the options table by",
        "#     python scripts/reference_pages.py",
        "# Do not edit it: what you want changed goes into the site's file, the topology, or -o key=value.",
        "",
    ]
    values = defaults("daemon")
    for option in OPTIONS.values():
        lines += textwrap.wrap(option.text, 100, initial_indent="# ", subsequent_indent="# ")
        lines.append(f"# {kind_of(option)[0].upper()}{kind_of(option)[1:]}. Set for {SCOPES[option.scope]}.")
        # JSON is also YAML, and writes each default as a person would.
        lines += [f"{option.name}: {json.dumps(values[option.name])}", ""]
    return "\n".join(lines)


def reference_table() -> str:
    """Return the options as a table in Markdown, for the reference page."""
    lines = ["| option | value | default | set for | meaning |", "|---|---|---|---|---|"]
    for option in OPTIONS.values():
        default = json.dumps(defaults("daemon")[option.name])
        scope = SCOPES[option.scope]
        lines.append(f"| `{option.name}` | {kind_of(option)} | `{default}` | {scope} | {option.text} |")
    return "\n".join(lines) + "\n"
