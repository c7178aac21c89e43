"""Leaks of a cluster: processes, ports, open files, threads, files. `before = Traces(...)`, and later `left(before)`.

Processes are recognised by a mark in their environment, which their children inherit, and by the test's folder in their command
line; so an orphaned grandchild is found as well. Linux only (/proc). Must not know: clusters.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

MARK = "SQUALL_TEST_RUN"
LISTENING = "0A"
#: The flags of a listening Unix socket.
ACCEPTS = "00010000"


@dataclass(frozen=True)
class Process:
    """One process: its identity, and its description."""

    pid: int
    parent: int
    state: str
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.state}, child of {self.parent}): {self.command}"


@dataclass(frozen=True)
class Traces:
    """The resources of this process itself."""

    mark: str
    #: Folder in which the cluster may put files, and must leave none.
    folder: Path
    files: frozenset[str] = field(default_factory=lambda: frozenset(own_descriptors()))
    threads: frozenset[str] = field(default_factory=lambda: frozenset(own_threads()))
    #: Processes that earlier tests started here and that may end at any time.
    children: frozenset[int] = field(default_factory=lambda: frozenset(own_children()))


def left(before: Traces) -> list[str]:
    """The resources that have appeared since, in words; does not wait."""
    return [
        *(str(process) for process in processes(before.mark, str(before.folder))),
        *(f"zombie: {process}" for process in zombies() if process.pid not in before.children),
        *(f"open here: {name}" for name in sorted(own_descriptors() - before.files)),
        *(f"thread here: {name}" for name in sorted(own_threads() - before.threads)),
        *(f"file: {path}" for path in sorted(before.folder.rglob("*"))),
    ]


def processes(mark: str, folder: str) -> list[Process]:
    """All living processes that a run has started, at any depth."""
    found = []
    for process in all_processes():
        if process.pid == os.getpid() or process.state == "Z":
            continue
        if f"{MARK}={mark}" in environment_of(process.pid) or folder in process.command:
            found.append(process)
    return found


def zombies() -> list[Process]:
    """Children of this process that ended and were not waited for."""
    return [one for one in all_processes() if one.parent == os.getpid() and one.state == "Z"]


def all_processes() -> list[Process]:
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            _, _, rest = Path("/proc", entry, "stat").read_text().rpartition(")")
            command = (
                Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
        except OSError:
            continue  # it has ended meanwhile
        state, parent, *_ = rest.split()
        found.append(Process(int(entry), int(parent), state, command.strip()))
    return found


def environment_of(pid: int) -> list[str]:
    try:
        return Path("/proc", str(pid), "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def descriptors(pid: int | str) -> dict[str, str]:
    """Descriptor -> what it refers to, of a process."""
    found = {}
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return {}
    for name in names:
        try:
            found[name] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue  # the descriptor of this listing
    return found


def own_descriptors() -> set[str]:
    return {f"{number} -> {target}" for number, target in descriptors("self").items()}


def own_children() -> set[int]:
    return {one.pid for one in all_processes() if one.parent == os.getpid()}


def own_threads() -> set[str]:
    return {f"{thread.name} ({thread.ident})" for thread in threading.enumerate()}


def listening_ports(pid: int) -> set[int]:
    """The TCP ports that a process listens on."""
    own = {target for target in descriptors(pid).values() if target.startswith("socket:")}
    ports = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc", str(pid), "net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *rest = line.split()
            if state == LISTENING and f"socket:[{rest[5]}]" in own:
                ports.add(int(local.rpartition(":")[2], 16))
    return ports


def listening_paths(pid: int) -> set[str]:
    """The Unix sockets in the file system on which a process listens."""
    own = {target for target in descriptors(pid).values() if target.startswith("socket:")}
    try:
        rows = [line.split() for line in Path("/proc", str(pid), "net", "unix").read_text().splitlines()[1:]]
    except OSError:
        return set()
    listening = [row for row in rows if row[3] == ACCEPTS and f"socket:[{row[6]}]" in own]
    return {row[7] for row in listening if row[7:] and row[7].startswith("/")}


def all_listening_ports() -> set[int]:
    """The TCP ports on which any process of this machine listens."""
    ports = set()
    for table in ("/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:] if os.path.exists(table) else ():
            _, local, _, state, *_ = line.split()
            if state == LISTENING:
                ports.add(int(local.rpartition(":")[2], 16))
    return ports


def memory_of(pid: int) -> float:
    """The resident memory of a process in MB; 0 if it has ended."""
    try:
        for line in Path("/proc", str(pid), "status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def state_of(pid: int) -> str | None:
    """The state letter of a process (R, S, T stopped, Z zombie); None if it has ended."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None
