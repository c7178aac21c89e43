"""The calls of S3's API that a store makes, by boto3, with their errors translated.

boto3 would repeat a failed call by itself. A conditional call that has taken effect, but whose answer was lost, would then fail
its own condition, and its caller would believe that another process was faster. So boto3 repeats nothing here. A write is made
again only if the server says that nothing was done (`BUSY`, `CONFLICT`); a read after any temporary error.
Must not know: tables, which files may be replaced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import urlsplit

from squall.stores.files import FilesRefused, FilesUnavailable, NotServed
from squall.stores.s3_errors import BUSY, CONFLICT, code_of, error_of

_T = TypeVar("_T")

#: Seconds until a connection, or a silent server, is given up.
_CONNECT: Final = 10.0
_PATIENCE: Final = 30.0
#: How many times a call is made, and seconds before the second time; then twice as many each time.
_TRIES: Final = 4
_PAUSE: Final = 0.1
#: The most keys of a page of a listing, and of a call that deletes.
_PAGE = 1000
#: The most bytes that one call copies, and the bytes of a part of a larger object.
LARGEST_COPY: Final = 5 << 30
_PART: Final = 1 << 30
_SLICE: Final = 1 << 20


class S3Bucket:
    """One bucket. Any thread may call any method; `what` begins an error's text."""

    def __init__(
        self, name: str, endpoint: str | None = None, *, pause: Callable[[float], None] = time.sleep
    ) -> None:
        """endpoint: as in `endpoint_of`; without one, boto3's settings decide."""
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError:
            raise FilesRefused(
                f"cannot open s3://{name}: this needs boto3: install Squall with its extra `s3`, also where workers run"
            ) from None
        self.name = name
        self._pause = pause
        self._failures = (BotoCoreError, ClientError)
        elsewhere = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        config = Config(
            connect_timeout=_CONNECT,
            read_timeout=_PATIENCE,
            retries={"total_max_attempts": 1},
            # Servers other than Amazon's rarely have a host name for each bucket.
            s3={"addressing_style": "path" if elsewhere else "auto"},
        )
        try:
            session = boto3.session.Session()
            # A server of one's own has no regions, but a signature names one.
            region = session.region_name or "us-east-1"
            self._client: Any = session.client("s3", endpoint_url=endpoint, region_name=region, config=config)
        except self._failures as error:
            raise error_of(f"cannot open s3://{name}", error) from None
        except ValueError as error:  # of an endpoint in the environment
            raise FilesRefused(f"cannot open s3://{name}: {error}; see AWS_ENDPOINT_URL") from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def pages(self, what: str, prefix: str, delimiter: str = "", most: int | None = None) -> Iterator[Any]:
        """Yield the pages of a listing of the keys that begin with `prefix`."""
        arguments = {
            "Prefix": prefix,
            "MaxKeys": most or _PAGE,
            **({"Delimiter": delimiter} if delimiter else {}),
        }
        while True:
            page = self._read(what, partial(self._client.list_objects_v2, Bucket=self.name, **arguments))
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def size(self, what: str, key: str) -> int:
        """Return the size of an object. Raises `AbsentFile`."""
        return int(self._read(what, lambda: self._client.head_object(**self._at(key)))["ContentLength"])

    def slices(
        self, what: str, key: str, offset: int, length: int | None, use: Callable[[bytes], None]
    ) -> bool:
        """Pass an object's bytes from `offset`, at most `length` of them, to `use` in slices; return False if the object ends
        before `offset`. Raises `AbsentFile`; `use` may have got a part of the bytes when this raises.
        """
        part = {}
        if offset or length is not None:
            part["Range"] = f"bytes={offset}-{'' if length is None else offset + length - 1}"
        try:
            body = self._client.get_object(**self._at(key), **part)["Body"]
            try:
                while data := body.read(_SLICE):
                    use(data)
            finally:
                body.close()
        except self._failures as error:
            if code_of(error) == "InvalidRange":
                return False
            raise error_of(what, error) from None
        return True

    def again(self, call: Callable[[], _T]) -> _T:
        """Make a call that reads; after a temporary error make it again."""
        for turn in range(_TRIES):
            try:
                return call()
            except NotServed:
                raise
            except FilesUnavailable:
                if turn == _TRIES - 1:
                    raise
            self._pause(_PAUSE * 2**turn)
        raise AssertionError("the last turn returns or raises")

    def put(self, what: str, key: str, content: bytes | BinaryIO, *, if_absent: bool) -> None:
        """Put an object: bytes, or an open file from where it stands. Raises `FileTaken` if it must be absent and is not."""
        body = content if hasattr(content, "read") else bytes(content)  # boto3 takes no memoryview
        begins = 0 if isinstance(body, bytes) else body.tell()

        def put() -> object:
            if not isinstance(body, bytes):
                body.seek(begins)  # an attempt that failed may have read it
            return self._client.put_object(**self._at(key), Body=body, **_condition(if_absent))

        self._write(what, put)

    def copy(self, what: str, source: str, target: str) -> None:
        """Copy an object to an absent key by one call. Raises `FileTaken`, `AbsentFile`."""
        self._write(
            what, lambda: self._client.copy_object(**self._copied(source, target), **_condition(True))
        )

    def copy_in_parts(self, what: str, source: str, target: str, size: int) -> None:
        """Copy an object of this size to an absent key by an upload of parts, whose last call has the condition. Raises
        `FileTaken`, `AbsentFile`."""
        if not size:  # an upload has a part, and a part has a byte
            self.size(what, source)
            self.put(what, target, b"", if_absent=True)
            return
        at = self._at(target)
        upload = self._write(what, lambda: self._client.create_multipart_upload(**at))["UploadId"]
        try:
            parts = [
                {
                    "PartNumber": number,
                    "ETag": self._copy_part(what, source, target, upload, number, begin, size),
                }
                for number, begin in enumerate(range(0, size, _PART), 1)
            ]
            whole = {"MultipartUpload": {"Parts": parts}, "UploadId": upload}
            self._write(
                what, lambda: self._client.complete_multipart_upload(**at, **whole, **_condition(True))
            )
        except BaseException:
            with suppress(
                *self._failures
            ):  # parts that are left are invisible: the bucket's rules delete them
                self._client.abort_multipart_upload(**at, UploadId=upload)
            raise

    def delete(self, what: str, keys: Sequence[str]) -> None:
        """Delete objects; those that are absent are left out."""
        for begin in range(0, len(keys), _PAGE):
            some = keys[begin : begin + _PAGE]
            if len(some) == 1:
                self._write(what, partial(self._client.delete_object, **self._at(some[0])))
                continue
            named = {"Objects": [{"Key": key} for key in some], "Quiet": True}
            answer = self._write(what, partial(self._client.delete_objects, Bucket=self.name, Delete=named))
            for failed in answer.get("Errors", ()):
                if failed.get("Code") != "NoSuchKey":
                    raise error_of(what, _Failed(failed))

    def _copy_part(
        self, what: str, source: str, target: str, upload: str, number: int, begin: int, size: int
    ) -> str:
        """Copy a part; return what identifies it."""
        end = min(begin + _PART, size) - 1
        part = {"UploadId": upload, "PartNumber": number, "CopySourceRange": f"bytes={begin}-{end}"}
        if size <= _PART:
            del part["CopySourceRange"]
        copied = self._write(
            what, lambda: self._client.upload_part_copy(**self._copied(source, target), **part)
        )
        return str(copied["CopyPartResult"]["ETag"])

    def _at(self, key: str) -> dict[str, Any]:
        return {"Bucket": self.name, "Key": key}

    def _copied(self, source: str, target: str) -> dict[str, Any]:
        return {**self._at(target), "CopySource": self._at(source)}

    def _read(self, what: str, call: Callable[[], _T]) -> _T:
        """Make a call that changes nothing."""

        def translated() -> _T:
            try:
                return call()
            except self._failures as error:
                raise error_of(what, error) from None

        return self.again(translated)

    def _write(self, what: str, call: Callable[[], _T]) -> _T:
        """Make a call that changes something; make it again only if the server says that it was not done."""
        for turn in range(_TRIES):
            try:
                return call()
            except self._failures as error:
                if turn == _TRIES - 1 or code_of(error) not in (*BUSY, CONFLICT):
                    raise error_of(what, error) from None
            self._pause(_PAUSE * 2**turn)
        raise AssertionError("the last turn returns or raises")


class _Failed(Exception):
    """One of several deletions in a call has failed."""

    def __init__(self, error: Mapping[str, str]) -> None:
        code = error.get("Code", "")
        status = 403 if code == "AccessDenied" else 500
        self.response = {"Error": dict(error), "ResponseMetadata": {"HTTPStatusCode": status}}


def _condition(if_absent: bool) -> dict[str, str]:
    return {"IfNoneMatch": "*"} if if_absent else {}


def endpoint_of(address: str) -> str:
    """Return the address of a server that speaks S3, as `squall.s3.endpoint` gives it. Raises `FilesRefused`."""
    try:
        base = urlsplit(address)
        known = base.scheme in ("http", "https") and bool(base.hostname) and base.port != 0
    except ValueError:  # the port is not a number, or a bracket of IPv6 is missing
        known = False
    if known and not (base.path.strip("/") or base.query or "@" in address or len(address.split()) > 1):
        return f"{base.scheme}://{base.netloc}"
    # What is before an "@" may be a password.
    raise FilesRefused(
        f"{address.rpartition('@')[2]!r} is not the address of an S3 server: give http://HOST:PORT or https://HOST"
    )


def keys_of(page: Mapping[str, Any]) -> Iterable[tuple[str, int, float]]:
    """Return key, size and time of each object of a page."""
    return (
        (each["Key"], each["Size"], each["LastModified"].timestamp()) for each in page.get("Contents", ())
    )
