"""Files with secrets, and folders that daemons write to: only their owner may use them; files that other users can read, and
folders that other users can enter, are refused.

Must not know: what the secrets are. Errors name a file's path, never its contents.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from squall.atomic_files import sync_folder
from topology_api.errors import SquallError

#: The most bytes that are read: no secret of Squall is longer. If the path is wrong (a log, a device), the limit protects the
#: memory.
_LONGEST = 64 * 1024


class BadPrivateFile(SquallError):
    """A file with a secret that cannot be used."""


class BadPrivateFolder(SquallError):
    """A folder to which other users have access."""


def read_private(path: Path | str, what: str) -> str | None:
    """Return the text of a file that holds `what` ("the operators' token"), without blanks around it; None if there is no file.

    Raises `BadPrivateFile` if others may read or write the file, or if it cannot be read, is empty or is not text.
    """
    try:
        # The file is opened first and checked afterwards, so that the check applies to the opened file. Without O_NONBLOCK,
        # opening a FIFO would hang.
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            state = os.fstat(file.fileno())
            problem = _problem(state, path)
            data = b"" if problem else file.read(_LONGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadPrivateFile(f"{what} cannot be read from {path}: {error.strerror or error}") from error
    if problem is None and len(data) > _LONGEST:
        problem = f"it is longer than {_LONGEST} bytes"
    try:
        text = data.decode("utf-8").strip()
    except UnicodeDecodeError:
        problem = problem or "it holds no text"
    else:
        problem = problem or (None if text else "it is empty")
    if problem is not None:
        raise BadPrivateFile(f"{what} is not taken from {path}: {problem}")
    return text


def write_private(path: Path | str, text: str) -> None:
    """Replace a file with a file that only its owner may read; a reader sees either the old or the new text."""
    with _beside(Path(path), text) as beside:
        os.replace(beside, path)
        sync_folder(Path(path).parent)


def make_private(path: Path | str, text: str) -> bool:
    """Create a file that only its owner may read, unless it exists; return whether it was created. If several callers try at
    once, one of them creates it."""
    with _beside(Path(path), text) as beside:
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
        sync_folder(Path(path).parent)
    return True


def make_private_folder(folder: Path) -> None:
    """Make a missing folder and its missing parents, with access for their owner only."""
    # `mkdir(parents=True)` applies the mode only to the last folder.
    for path in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        with suppress(FileExistsError):  # another process was faster: its folder is used
            path.mkdir(mode=0o700)
            path.chmod(0o700)  # whatever the umask


def own_folder(folder: Path) -> None:
    """Make a missing folder with access for its owner only. Raises `BadPrivateFolder` if the folder belongs to another user, if
    others have access to it, if a symbolic link of another user leads to it, or if a symbolic link lies in it: another user may
    have left it there before the folder was closed; and `OSError`."""
    user = os.geteuid()
    for path in (folder, *folder.absolute().parents):
        if path.is_symlink() and (owner := path.lstat().st_uid) not in (user, 0):
            raise BadPrivateFolder(
                f"{path} is a symbolic link of another user (uid {owner}): name the directory itself"
            )
    make_private_folder(folder)
    descriptor = os.open(folder.resolve(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        state = os.fstat(descriptor)
        with os.scandir(descriptor) as entries:
            links = sorted(entry.name for entry in entries if entry.is_symlink())
    finally:
        os.close(descriptor)
    if state.st_uid != user:
        raise BadPrivateFolder(
            f"{folder} belongs to another user (uid {state.st_uid}, not {user}): give a directory that belongs to the user who"
            " runs this command, or run the command as that user"
        )
    if (mode := stat.S_IMODE(state.st_mode)) & 0o077:
        raise BadPrivateFolder(
            f"other users have access to {folder} (mode {mode:04o}): if it contains nothing that they may have put there, run"
            f" `chmod 700 {folder}`; otherwise use a new directory"
        )
    if links:
        raise BadPrivateFolder(f"{folder / links[0]} is a symbolic link, which is not followed: remove it")


def _problem(state: os.stat_result, path: Path | str) -> str | None:
    if not stat.S_ISREG(state.st_mode):
        return "it is not a file"
    if (mode := stat.S_IMODE(state.st_mode)) & 0o077:
        return f"users other than its owner may read or change it (mode {mode:04o}): run `chmod 600 {path}`"
    if state.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
        return f"it belongs to another user (uid {state.st_uid})"
    return None


@contextmanager
def _beside(target: Path, text: str) -> Iterator[Path]:
    """Yield a new file beside the target that holds the text, once all of the text is on the disk. Its temporary name is
    removed at the end."""
    make_private_folder(target.parent)
    from secrets import token_hex  # not at the top: processes that only read start faster

    beside = target.with_name(f".{target.name}.{token_hex(6)}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            os.fchmod(file.fileno(), 0o600)  # whatever the umask
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        yield beside
    finally:
        beside.unlink(missing_ok=True)
