"""Calls of Amazon's services: the client of a task, and what their failures mean.

Credentials come by boto3's own chain (environment, files, roles) where the connector runs; a topology has none.
Must not know: queues, streams, tuples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

from squall_io.kit.libraries import load_library
from squall_io.kit.queue_client import QueueAway
from topology_api import SquallError
from topology_api.wording import typed

#: Seconds for a connection, and for an answer besides the seconds of a long poll.
CONNECT_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 8.0

_REGION: Final = re.compile(r"[a-z]{2,}(-[a-z]+)+-[0-9]+")
#: What the codes of errors that pass by themselves contain.
_PASSING: Final = ("Throttl", "Throughput", "LimitExceeded", "OverLimit", "Unavailable", "InternalError", "InternalFailure",
                   "RequestTimeout", "TooManyRequests", "SlowDown")  # fmt: skip
#: What the codes of errors of credentials contain.
_CREDENTIALS: Final = ("AccessDenied", "UnauthorizedAccess", "InvalidClientTokenId", "SignatureDoesNotMatch", "ExpiredToken",
                       "UnrecognizedClient", "AuthFailure", "MissingAuthenticationToken", "InvalidSignature",
                       "NotAuthorized", "InvalidSecurity", "InvalidAccessKeyId")  # fmt: skip
_ADVICE: Final = (
    "check the credentials of the workers (environment, files, role) and the policy that they have"
)


class AwsAway(QueueAway):
    """A service does not answer, or cannot now. The same call may succeed later."""


class AwsRefused(SquallError):
    """A service refuses a call, and will until something is changed. code: the service's name for why."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


def service_problems(region: object, endpoint_url: object) -> Iterator[str]:
    """Yield what is wrong with the arguments that name a service."""
    if region is not None and not (isinstance(region, str) and _REGION.fullmatch(region)):
        yield f'region is {typed(region)}: give the name of a region, "eu-central-1", or None'
    if endpoint_url is not None and (problem := endpoint_problem(endpoint_url)) is not None:
        yield f"endpoint_url {problem}"


def endpoint_problem(url: object) -> str | None:
    """Return why a URL names no service; None if it does. The text shows no secret."""
    form = 'give "https://HOST", or None for Amazon'
    if isinstance(url, str) and "@" in url:
        return "has a user, or an @: credentials come from the environment, files or roles of the workers"
    if isinstance(url, str):
        with suppress(ValueError):  # brackets that do not match, a port that is none
            parts = urlsplit(url)
            if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
                return None
    return f"is {typed(url)}: {form}"


class AwsService:
    """The client of one service. component: the class that needs it, for errors."""

    def __init__(self, component: str, service: str, region: str | None, endpoint_url: str | None) -> None:
        self._component, self._service = component, service
        self._region, self._endpoint_url = region, endpoint_url
        self._errors = self._module("botocore.exceptions")
        self._client: Any = None

    @property
    def where(self) -> str:
        """Where the service is, for texts."""
        return self._endpoint_url or self._region or "the region of the environment"

    def call(self, operation: str, /, **arguments: Any) -> Any:
        """Make a call; return its answer. Raises AwsAway and AwsRefused."""
        errors = self._errors
        try:
            if self._client is None:
                self._client = self._made()
            return getattr(self._client, operation)(**arguments)
        except errors.ClientError as error:
            raise self._refusal(operation, error.response) from None
        except (errors.ConnectionError, errors.HTTPClientError, errors.ConnectionClosedError) as error:
            raise AwsAway(_one_line(error)) from None
        except (
            errors.NoCredentialsError,
            errors.CredentialRetrievalError,
            errors.PartialCredentialsError,
        ) as error:
            raise AwsRefused(f"{self._component} has no credentials: {_one_line(error)}; {_ADVICE}") from None
        except errors.NoRegionError:
            raise AwsRefused(
                f"{self._component} knows no region: give region=, or set AWS_DEFAULT_REGION"
            ) from None
        except errors.BotoCoreError as error:
            raise AwsRefused(f"{self._component} cannot call {self._service}: {_one_line(error)}") from None

    def close(self) -> None:
        """Close the connections; a further call opens others."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _made(self) -> Any:
        session = self._module("botocore.session").Session()
        session.register_component("data_loader", _loader(self._component))
        return session.create_client(
            self._service,
            region_name=self._region,
            endpoint_url=self._endpoint_url,
            # The connector waits by itself, and says so; one repetition covers a connection that was idle for too long.
            config=self._module("botocore.config").Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=ANSWER_SECONDS,
                retries={"total_max_attempts": 2, "mode": "standard"},
            ),
        )

    def _module(self, name: str) -> Any:
        return load_library(self._component, name, library="boto3", extra="aws")

    def _refusal(self, operation: str, response: Mapping[str, Any]) -> SquallError:
        code = str(response.get("Error", {}).get("Code", ""))
        message = " ".join(str(response.get("Error", {}).get("Message", "")).split())
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        text = f"{code}: {message}" if message else code
        if status >= 500 or status == 429 or any(part in code for part in _PASSING):
            return AwsAway(text)
        advice = f"; {_ADVICE}" if any(part in code for part in _CREDENTIALS) else ""
        return AwsRefused(f"{self._service} at {self.where} refuses {operation}: {text}{advice}", code)


@cache
def _loader(component: str) -> Any:
    """Return what reads the descriptions of services: it keeps them, since that takes longer than a call."""
    return load_library(component, "botocore.loaders", library="boto3", extra="aws").create_loader()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
