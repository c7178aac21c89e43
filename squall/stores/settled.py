"""Puts a file that several callers may put, and finds out which content counts, also after a lost answer.

Must not know: what files hold.
"""

from __future__ import annotations

from squall.stores.files import Files, FilesUnavailable


def put_once(files: Files, path: str, data: bytes) -> bytes:
    """Put a file, unless there is one; return the content that the file then has: the same for all callers, as long as the
    file is not replaced or deleted.

    If the content is `data`, this call or an earlier try has put the file, or another caller with the same data. Who must tell
    these apart puts something into `data` that no other caller has.

    Raises `FilesUnavailable` if this call could not find out. The put may have taken effect, or may do so later: call this
    function again, with the same data.
    """
    try:
        if files.put_if_absent(path, data):
            return data
    except FilesUnavailable:
        # The answer may have been lost after the put, or another caller may have put the file meanwhile.
        if not files.exists(path):
            raise
    return files.read(path)
