"""The options of `format("squall")`, checked: a misspelt one would silently be ignored by Spark.

Must not know: tables, Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from squall.stores.opening import default_webhdfs
from squall.stores.paths import check_path
from squall_io.spark.reading.moments import Span, seconds_of
from squall_io.spark.source.offsets import Limit
from topology_api import SquallError
from topology_api.wording import listed, nearest

#: As the session's setting of this name: where WebHDFS is served. Spark's own option names are in lower case here.
WEBHDFS: Final = "squall.webhdfs.address"
#: The same of the S3 server.
S3_ENDPOINT: Final = "squall.s3.endpoint"
_SINCE: Final = "startingtimestamp"
_FILES: Final = "maxfilespertrigger"
_ROWS: Final = "maxrowspertrigger"
_FOR_FRAMES: Final = ("since", "until")
_FOR_STREAMS: Final = ("startingTimestamp", "maxFilesPerTrigger", "maxRowsPerTrigger")
_NAMES: Final = ("path", *_FOR_FRAMES, *_FOR_STREAMS, WEBHDFS, S3_ENDPOINT)
_ELSEWHERE: Final = ("key", "unreadable")


class WrongOption(SquallError):
    """An option of `format("squall")` that does not exist, or has a wrong value."""


class SourceSettings(msgspec.Struct, frozen=True):
    """What the options say. `given` names them as they were given, in lower case."""

    path: str
    webhdfs: str | None
    s3_endpoint: str | None
    span: Span
    since: float | None
    limit: Limit
    given: frozenset[str]

    @classmethod
    def of(
        cls, options: Mapping[str, str], webhdfs: str | None = None, s3_endpoint: str | None = None
    ) -> SourceSettings:
        """Check options whose names are in lower case. `webhdfs` and `s3_endpoint`: where these are by default. Raises
        `WrongOption`, `WrongMoment` or `InvalidPath`.
        """
        _require_known(options)
        if "path" not in options:
            raise WrongOption('no path is given: write spark.read.format("squall").load(PATH)')
        path = check_path(options["path"])
        limit = Limit(_number(options, _FILES), _number(options, _ROWS))
        if limit.files is not None and limit.rows is not None:
            raise WrongOption("maxFilesPerTrigger and maxRowsPerTrigger are given: give one of them")
        return cls(
            path,
            options.get(WEBHDFS, webhdfs) or default_webhdfs(path),
            options.get(S3_ENDPOINT, s3_endpoint),
            Span.of(options.get("since"), options.get("until")),
            seconds_of(options[_SINCE], "startingTimestamp") if _SINCE in options else None,
            limit,
            frozenset(options),
        )

    def require_for_frame(self) -> None:
        """Raise `WrongOption` for an option that only streams have."""
        self._require_no(_FOR_STREAMS, "read", "readStream", _FOR_FRAMES)

    def require_for_stream(self) -> None:
        """Raise `WrongOption` for an option that only frames have."""
        self._require_no(_FOR_FRAMES, "readStream", "read", _FOR_STREAMS)

    def _require_no(self, names: tuple[str, ...], here: str, there: str, instead: tuple[str, ...]) -> None:
        if wrong := [name for name in names if name.lower() in self.given]:
            raise WrongOption(
                f"spark.{here} has no option {wrong[0]!r}, which is for spark.{there}: the options here are {listed(instead)}"
            )


def _require_known(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _NAMES}
    for name in options:
        if name in _ELSEWHERE:
            raise WrongOption(
                f"option {name!r} is for squall_io.spark.read_committed(spark, path, {name}=...)"
            )
        if name not in known:
            near = nearest(name, _NAMES)
            raise WrongOption(f'format("squall") has no option {name!r} (it has {listed(_NAMES)}){near}')


def _number(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    text = options[name].strip()
    if not text.isdecimal() or int(text) < 1:
        spelt = next(each for each in _FOR_STREAMS if each.lower() == name)
        raise WrongOption(f"option {spelt} is {options[name]!r}: give a whole number from 1 on")
    return int(text)
