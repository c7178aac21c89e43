"""Puts a file that several callers may put, and finds out which content counts, also after a lost answer.

Must not know: what files hold.
"""

from __future__ import annotations

from squall.stores.files import Files, FilesUnavailable


def put_once(files: Files, path: str, data: bytes) -> bytes:
    """Put a file, unless there is one; return the content that the file then has, which is final if nobody replaces it.

    If the content is `data`, this call has put the file, or an earlier try whose answer was lost; a caller that must know that
    nobody else has done so puts something into `data` that no other caller has.

    Raises `FilesUnavailable` if there is no file, as far as is known: the put may still take effect. Then call this function
    again with the same data.
    """
    try:
        if files.put_if_absent(path, data):
            return data
    except FilesUnavailable:
        # The answer may have been lost after the put, or another caller may have put the file meanwhile.
        if not files.exists(path):
            raise
    return files.read(path)
