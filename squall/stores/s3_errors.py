"""Translates errors of S3: a table of the codes that servers answer with, and of the errors of boto3's client.

Only a code, a status or an error's class decides; the text is for users. An answer that is in no table is permanent below
status 500, since the same request would get it again, and presumed temporary above.
Must not know: which call was made.
"""

from __future__ import annotations

from typing import Any, Final

from squall.stores.files import (
    AbsentFile,
    FilesError,
    FilesFull,
    FilesRefused,
    FilesUnavailable,
    FileTaken,
    NotServed,
)

#: The answer to a condition that does not hold.
FAILED_CONDITION: Final = "PreconditionFailed"
#: Another conditional write, or a deletion, of the same key is in progress: nothing was done, and nothing is decided yet.
CONFLICT: Final = "ConditionalRequestConflict"
#: Answers of servers that have too much to do. Nothing was done.
BUSY: Final = (
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "RequestLimitExceeded",
    "429",
)

_KEYS: Final = (
    "boto3 finds keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in a profile, or by the host's role"
)
_PERMISSION: Final = (
    "give the worker's keys or role s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject, s3:DeleteObject and"
    " s3:AbortMultipartUpload below this path, or choose another path"
)
_BUCKET: Final = "make the bucket, or correct its name"
_REGION: Final = "is the bucket in another region? Set AWS_DEFAULT_REGION to the bucket's"
_UP: Final = "is the server up, and are endpoint (squall.s3.endpoint, AWS_ENDPOINT_URL) and region right?"
_FULL: Final = "delete files there, or raise the quota"

_CODES: Final[dict[str, tuple[type[FilesError], str]]] = {
    "NoSuchKey": (AbsentFile, ""),
    "404": (AbsentFile, ""),
    "NotFound": (AbsentFile, ""),
    FAILED_CONDITION: (FileTaken, ""),
    CONFLICT: (FilesUnavailable, "another process writes the same file"),
    "NoSuchBucket": (FilesRefused, _BUCKET),
    "InvalidBucketName": (FilesRefused, _BUCKET),
    "AccessDenied": (FilesRefused, _PERMISSION),
    "403": (FilesRefused, _PERMISSION),
    "InvalidAccessKeyId": (FilesRefused, _KEYS),
    "SignatureDoesNotMatch": (FilesRefused, f"the secret key does not belong to the access key; {_KEYS}"),
    "InvalidToken": (FilesRefused, _KEYS),
    "ExpiredToken": (FilesRefused, f"the keys have expired: start the worker with new ones, or with a role; {_KEYS}"),
    "TokenRefreshRequired": (FilesRefused, _KEYS),
    "RequestTimeTooSkewed": (FilesRefused, "set this host's clock (NTP)"),
    "PermanentRedirect": (FilesRefused, _REGION),
    "301": (FilesRefused, _REGION),
    "AuthorizationHeaderMalformed": (FilesRefused, _REGION),
    "IllegalLocationConstraintException": (FilesRefused, _REGION),
    "KeyTooLongError": (FilesRefused, "give a shorter path"),
    "QuotaExceeded": (FilesFull, _FULL),
    "XMinioAdminBucketQuotaExceeded": (FilesFull, _FULL),
    "XMinioStorageFull": (FilesUnavailable, _FULL),
    "InsufficientStorage": (FilesUnavailable, _FULL),
    "RequestTimeout": (FilesUnavailable, "the server has not got the request in time"),
    "OperationAborted": (FilesUnavailable, "another process changes the bucket"),
    **dict.fromkeys(BUSY, (FilesUnavailable, "the server has too much to do")),
}  # fmt: skip

#: By the names of the classes of botocore's own errors, and of their superclasses.
_CLASSES: Final[dict[str, tuple[type[FilesError], str]]] = {
    "NoCredentialsError": (FilesRefused, _KEYS),
    "PartialCredentialsError": (FilesRefused, _KEYS),
    "ProfileNotFound": (FilesRefused, _KEYS),
    "NoRegionError": (FilesRefused, "set AWS_DEFAULT_REGION"),
    "ParamValidationError": (FilesRefused, "give another path"),
    "SSLError": (FilesRefused, "does this machine trust the server's certificate (AWS_CA_BUNDLE)?"),
    "EndpointConnectionError": (NotServed, _UP),
    "ConnectTimeoutError": (NotServed, _UP),
    "ProxyConnectionError": (NotServed, "is the proxy up?"),
    "ReadTimeoutError": (FilesUnavailable, "the server has not answered in time"),
}


def code_of(error: Any) -> str:
    """Return the code of a server's answer; "" for another error of the client."""
    response = getattr(error, "response", None)  # that of a lost connection is None
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def error_of(what: str, error: Exception) -> FilesError:
    """Return the error for a call that boto3's client has raised an error for; `what`: "cannot read s3://..."."""
    response: Any = getattr(error, "response", None)
    if not isinstance(response, dict):
        for kind in type(error).__mro__:
            if kind.__name__ in _CLASSES:
                meaning, advice = _CLASSES[kind.__name__]
                return meaning(_text(what, str(error), kind.__name__, advice))
        return FilesUnavailable(_text(what, str(error), type(error).__name__, ""))
    code, status = code_of(error), response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    said = str(response.get("Error", {}).get("Message", ""))
    meaning, advice = _CODES.get(code, (FilesRefused if status < 500 else FilesUnavailable, ""))
    if status == 501:
        meaning, advice = FilesRefused, "this server does not have the call"
    return meaning(_text(what, said, code or f"HTTP status {status}", advice))


def _text(what: str, said: str, name: str, advice: str) -> str:
    """Return one line with the call, the server's words, and advice."""
    line = " ".join(said.split())[:300].rstrip(".")
    return f"{what}: {f'{line} ({name})' if line else name}{f'; {advice}' if advice else ''}"
