"""Whether a folder on HDFS is for its user only. Must not know: how it is looked at."""

from __future__ import annotations

from squall.stores.files import FilesRefused


def require_private(root: str, user: str, owner: str, mode: int, *, is_folder: bool) -> None:
    """Raise `FilesRefused` unless `root` is a folder of this user that no other may enter."""
    if not is_folder:
        raise FilesRefused(f"cannot make folder {root}: it is a file; give another path")
    if owner != user:
        raise FilesRefused(
            f"{root} belongs to the user {owner!r}, not to {user!r}: give a folder of this user, or set"
            " HADOOP_USER_NAME where the worker is started"
        )
    if mode & 0o077:
        raise FilesRefused(
            f"other users have access to {root} (mode {mode:o}): if it contains nothing that they may have put there,"
            f" run `hdfs dfs -chmod 700 {root}`; otherwise use a new folder"
        )
