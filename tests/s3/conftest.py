"""The S3 server of the tests of this folder, and a path in it for each of them."""

from __future__ import annotations

import itertools

import pytest

from tests.s3_servers import COPIES, S3Server, s3, s3_keys

__all__ = ["s3", "s3_keys"]

_paths = itertools.count(1)


@pytest.fixture
def s3_path(s3: S3Server, s3_keys: None) -> str:
    """An empty path for this test alone."""
    return f"s3://{COPIES}/test-{next(_paths)}/table"
