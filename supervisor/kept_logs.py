"""The logs of workers whose topology or version has ended, kept for some days in the supervisor's state directory.

```
<state>/logs/<topology id>/<worker>/    worker.log, output.log and their older files
```

A topology's folder is as old as its end. At most 20 topologies of a host are kept. User code wrote the files: only regular
files are kept, and none that is larger than 64 MiB.
Must not know: processes, the store, which topologies run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from squall.guarded_files import is_file, size_of
from squall.security.private_files import make_private_folder
from squall.worker_files import LOG, OUTPUT
from supervisor.rare_warnings import RareWarnings

_log = logging.getLogger(__name__)

#: The most topologies whose logs are kept.
MOST_TOPOLOGIES: Final = 20
#: The most bytes of a file that is kept.
MOST_BYTES: Final = 64 * 1024 * 1024
DAY: Final = 86400.0
#: The logs, and the older files of their rotation.
_FILES: Final = tuple(f"{name}{older}" for name in (LOG, OUTPUT) for older in ("", ".1", ".2", ".3"))
#: Seconds between two searches for logs that are too old.
_PAUSE: Final = 600.0


class KeptLogs:
    """The kept logs of one supervisor."""

    def __init__(
        self, state: Path, days: float, remove: Callable[[Path], object], wall_clock: Callable[[], float]
    ) -> None:
        """`remove`: removes a folder now or soon. `wall_clock`: gives seconds since 1970."""
        self.root = Path(os.path.abspath(state)) / "logs"
        self._days, self._remove, self._wall_clock = days, remove, wall_clock
        self._next = 0.0
        self._warnings = RareWarnings()

    def keep(self, topology: Path) -> None:
        """Take the logs out of the directory of a topology that has ended. What cannot be kept is logged."""
        if not self._days:
            return
        try:
            for worker in sorted((topology / "workers").iterdir()):
                self._keep_worker(worker, self.root / topology.name / worker.name)
            if (kept := self.root / topology.name).is_dir():
                os.utime(kept, (self._wall_clock(),) * 2)
        except FileNotFoundError:
            return
        except OSError as error:
            if self._warnings.due(topology.name, self._wall_clock()):
                _log.warning("logs of %s are not kept: %s", topology.name, error)
        self._expire()

    def tick(self, now: float) -> None:
        """Remove logs that are too old, now and then. `now`: a time on the supervisor's clock."""
        if now >= self._next:
            self._next = now + _PAUSE
            self._expire()

    def _keep_worker(self, worker: Path, kept: Path) -> None:
        if worker.is_symlink():
            return
        for path in (worker / name for name in _FILES):
            if not is_file(path):
                continue
            if size_of(path) > MOST_BYTES:
                _log.warning("%s is too large, and is not kept", path)
                continue
            make_private_folder(kept)
            os.rename(path, kept / path.name)

    def _expire(self) -> None:
        """Remove logs that are too old or too many."""
        try:
            kept = sorted(((path.lstat().st_mtime, path) for path in self.root.iterdir()), reverse=True)
        except OSError:
            return
        since = self._wall_clock() - self._days * DAY
        for number, (ended, path) in enumerate(kept):
            if number >= MOST_TOPOLOGIES or ended < since:
                self._remove(path)
