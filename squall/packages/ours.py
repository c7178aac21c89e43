"""The names of Squall's own packages: a user's module with one of these names cannot be distinguished from Squall's.

Workers use the names to recognise Squall's frames in a traceback.
Must not know: any other module.
"""

from typing import Final

OURS: Final = (
    "topology_api", "squall", "nimbus", "supervisor", "worker", "squall_io", "local_cluster", "squall_cli",
)  # fmt: skip
