"""What makes a topology's id one that no other submission has, on whatever machine: the end of the ids of local clusters.

Each local cluster counts its submissions from 1, its clock may be simulated or begin with the machine, and many may start in
one second; but what tasks keep outside, in files and tables, is kept by the id, and lasts.
Must not know: clusters.
"""

from __future__ import annotations

import secrets
import time


def new_stamp() -> str:
    """The calendar's second and something random: "1700000000_5f3a9c01"; without a "-", which parts an id (`registry`)."""
    return f"{int(time.time())}_{secrets.token_hex(4)}"
