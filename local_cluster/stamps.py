"""Makes topology ids of local clusters unique on all machines, by means of a stamp at their end.

Tasks store data under a topology's id, in files and tables outside of the cluster. But each local cluster counts its
submissions from 1, its clock may be simulated or start with the machine, and many clusters may start within a second.
Must not know: clusters.
"""

from __future__ import annotations

import secrets
import time


def new_stamp() -> str:
    """Return the Unix time and a random part: "1700000000_5f3a9c01". The stamp has no "-", which separates the parts of an
    id."""
    return f"{int(time.time())}_{secrets.token_hex(4)}"
