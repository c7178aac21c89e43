"""The store on S3 keeps the promises of `Files`, whatever the server honours, and whatever it answers."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from squall.stores.files import AbsentFile, Files, FilesFull, FilesRefused, FilesUnavailable, NotServed
from squall.stores.paths import TMP
from squall.stores.s3 import S3Files
from squall.stores.s3_bucket import endpoint_of
from squall.stores.settled import put_once
from tests.files_contract import FilesContract
from tests.s3_servers import COPIES, IGNORES, PARTS, PUTS, REFUSES, S3Server

_paths = itertools.count(1)
#: How a store is opened on a server.
Open = Callable[[str], S3Files]


@pytest.fixture
def opened(s3: S3Server, s3_keys: None) -> Open:
    """Opens a store without pauses between repetitions."""
    return lambda path: S3Files(path, s3.url, pause=lambda seconds: None)


class Contract(FilesContract):
    """The contract in a bucket."""

    bucket = COPIES
    # There are no temporary files, and no empty folders.
    own = ()
    keeps_empty_folders = False

    @pytest.fixture
    def path(self) -> str:
        return f"s3://{self.bucket}/contract-{next(_paths)}/table"

    @pytest.fixture
    def files(self, opened: Open, path: str) -> Files:
        return opened(path)

    @pytest.fixture
    def other(self, opened: Open, path: str) -> Files:
        return opened(path.replace("s3:", "s3a:"))


class TestContract(Contract):
    """On a server that honours conditions of copies."""


class TestContractInParts(Contract):
    """On a server that honours them only for uploads in parts."""

    bucket = PARTS


@pytest.mark.parametrize("bucket", [COPIES, PARTS])
def test_a_large_file_moves_in_parts(opened: Open, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall.stores.s3_bucket._PART", 5 << 20)  # S3's smallest
    monkeypatch.setattr("squall.stores.s3.LARGEST_COPY", 6 << 20)
    files = opened(f"s3://{bucket}/large-{next(_paths)}")
    content = bytes(range(256)) * (12 << 12) + b"end"
    files.put_if_absent("staging/a", content)
    files.put_if_absent("staging/b", b"b" * (7 << 20))
    assert files.move_if_absent("staging/a", "data/a")
    assert not files.move_if_absent("staging/b", "data/a")
    assert files.read("data/a") == content
    assert [status.path for status in files.walk("staging")] == ["staging/b"]


@pytest.mark.parametrize(
    ("bucket", "reason"), [(IGNORES, "overwrites"), (REFUSES, "not have the call"), (PUTS, "overwrites")]
)
def test_a_server_that_does_not_honour_conditions_is_refused_before_the_first_conditional_call(
    opened: Open, bucket: str, reason: str
) -> None:
    files = opened(f"s3://{bucket}/refused/table")
    for call in (partial(files.put_if_absent, "a", b"x"), partial(files.move_if_absent, "b", "c")):
        with pytest.raises(FilesRefused, match=reason) as refusal:
            call()
        assert files.root in str(refusal.value)
        if bucket != REFUSES:
            assert "give a path on Amazon S3" in str(refusal.value)
    assert not files.exists("a") and files.list(TMP) == []
    files.replace("b", b"read")
    assert files.read("b") == b"read"


def test_an_answer_that_is_lost_is_no_defeat(opened: Open, s3: S3Server) -> None:
    files = opened("s3://copies/lost-put")
    assert files.put_if_absent("first", b"")
    s3.fails(("PUT", "lost-put/claim", "after"))
    with pytest.raises(FilesUnavailable, match="cannot write s3://copies/lost-put/claim"):
        files.put_if_absent("claim", b"mine")
    assert files.read("claim") == b"mine"
    s3.fails(("PUT", "lost-put/other", "after"))
    assert put_once(files, "other", b"mine") == b"mine"


@pytest.mark.parametrize("bucket", [COPIES, PARTS])
def test_a_move_whose_answer_is_lost_leaves_the_file_with_both_names_and_can_be_made_again(
    opened: Open, s3: S3Server, bucket: str
) -> None:
    files = opened(f"s3://{bucket}/lost-move")
    files.put_if_absent("staging/day=1/f", b"rows")
    method, part = ("PUT", "data/f") if bucket == COPIES else ("POST", "uploadId")
    s3.fails((method, part, "after"))
    with pytest.raises(FilesUnavailable, match=f"to s3://{bucket}/lost-move/data/f"):
        files.move_if_absent("staging/day=1/f", "data/f")
    assert files.read("staging/day=1/f") == files.read("data/f") == b"rows"
    assert not files.move_if_absent("staging/day=1/f", "data/f")
    s3.fails(("DELETE", "staging", "before"))
    files.put_if_absent("staging/day=1/g", b"more")
    with pytest.raises(FilesUnavailable):
        files.move_if_absent("staging/day=1/g", "data/g")
    assert files.read("staging/day=1/g") == files.read("data/g") == b"more"


def test_a_folder_is_still_there_when_its_last_file_has_moved_away(opened: Open, s3: S3Server) -> None:
    files = opened("s3://copies/markers")
    files.put_if_absent("staging/b/1/day=1/f", b"rows")
    s3.fails(("PUT", "data/f", "before"))
    with pytest.raises(FilesUnavailable):
        files.move_if_absent("staging/b/1/day=1/f", "data/f")
    # Before the copy: a sweeper that deletes the source and dies leaves the folder to the next sweeper.
    files.delete("staging/b/1/day=1/f")
    assert [status.path for status in files.walk("staging")] == [
        "staging/b",
        "staging/b/1",
        "staging/b/1/day=1",
    ]
    assert [(s.path, s.is_folder) for s in files.list("staging/b/1")] == [("staging/b/1/day=1", True)]
    assert files.exists("staging/b") and files.list("staging/b/1/day=1") == []
    files.delete("staging/b")
    assert not files.exists("staging")


def test_what_the_server_says_was_not_done_is_done_again(opened: Open, s3: S3Server) -> None:
    files = opened("s3://copies/busy")
    s3.fails(("PUT", "busy/a", "503 SlowDown"), ("PUT", "busy/a", "409 ConditionalRequestConflict"))
    assert files.put_if_absent("a", b"x")
    s3.fails(*[("PUT", "busy/b", "409 ConditionalRequestConflict")] * 4)
    with pytest.raises(FilesUnavailable, match="another process writes the same file"):
        files.put_if_absent("b", b"x")
    assert not files.exists("b")
    s3.fails(("GET", "busy/a", "500 InternalError"), ("GET", "busy/a", "before"))
    assert files.read("a") == b"x"
    s3.fails(*[("GET", "prefix=busy", "500 InternalError")] * 3)
    assert [status.path for status in files.list("")] == ["a"]


def test_a_file_that_is_sent_again_is_sent_from_its_beginning(opened: Open, s3: S3Server) -> None:
    files = opened("s3://copies/again")
    s3.fails(*[("PUT", "again/a", "503 SlowDown")] * 2)
    files.upload("a", io.BytesIO(b"0123456789" * 100_000))
    assert s3.faults() == [] and files.read("a") == b"0123456789" * 100_000


def test_errors_name_the_call_the_path_and_the_servers_words(opened: Open, s3: S3Server) -> None:
    files = opened("s3://copies/errors")
    files.put_if_absent("a", b"x")
    for how, kind, text in (
        ("403 AccessDenied", FilesRefused, "as the test wants (AccessDenied); give the worker's keys"),
        ("403 QuotaExceeded", FilesFull, "QuotaExceeded"),
        ("500 InternalError", FilesUnavailable, "as the test wants (InternalError)"),
        ("403 RequestTimeTooSkewed", FilesRefused, "clock"),
        ("400 ExpiredToken", FilesRefused, "expired"),
    ):
        s3.fails(("PUT", "errors/b", how))
        with pytest.raises(kind) as error:
            files.put_if_absent("b", b"x")
        assert type(error.value) is kind
        assert "cannot write s3://copies/errors/b: " in str(error.value) and text in str(error.value)
    with pytest.raises(FilesRefused, match="make the bucket"):
        opened("s3://no-such-bucket/table").list("")
    with pytest.raises(FilesRefused, match="make the bucket"):
        opened("s3://no-such-bucket/table").put_if_absent("a", b"")


def test_a_server_that_is_not_there_has_done_nothing(s3_keys: None) -> None:
    pytest.importorskip("boto3")
    files = S3Files("s3://copies/away", "http://127.0.0.1:9", pause=lambda seconds: None)
    with pytest.raises(NotServed, match=r"squall\.s3\.endpoint"):
        files.put_if_absent("a", b"x")
    with pytest.raises(NotServed, match="cannot list s3://copies/away/b"):
        files.list("b")


def test_without_keys_the_error_says_where_they_are_looked_for(
    s3: S3Server, s3_keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(FilesRefused, match="AWS_ACCESS_KEY_ID"):
        S3Files("s3://copies/keys", s3.url).list("")


def test_more_entries_than_a_page_has_are_listed_and_deleted(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall.stores.s3_bucket._PAGE", 20)
    files = opened("s3://copies/many")
    names = [f"f{number:04}" for number in range(50)]
    for name in names:
        files.replace(f"d/{name}", b"")
    files.replace("d/x/y", b"")
    assert [status.name for status in files.list("d")] == [*names, "x"]
    assert len(files.walk("d")) == 52
    files.delete("d")
    assert files.walk("") == []


def test_a_tree_is_walked_in_one_call_and_looking_for_a_claim_is_one_call(opened: Open, s3: S3Server) -> None:
    files = opened("s3://copies/calls")
    for number in range(20):
        files.put_if_absent(f"d/{number}/x/y", b"")
    s3.requests()
    assert len(files.walk("")) == 61
    assert not files.exists("d/30/claim.json")
    assert len(s3.requests()) == 2


def test_keys_of_others_that_no_path_names_are_left_out(opened: Open, s3: S3Server) -> None:
    files = opened("s3://copies/foreign")
    files.replace("d/a", b"")
    for key in ("d//b", "d/../c", "d/./e"):
        files._bucket.put("", f"foreign/{key}", b"", if_absent=False)
    assert [status.path for status in files.list("d")] == ["d/a"]
    assert [status.path for status in files.walk("d")] == ["d/a"]


@pytest.mark.parametrize("path", ["s3:///folder", "s3://b--x-s3/folder", "s3://user@b/folder"])
def test_buckets_that_cannot_hold_a_table_are_refused(path: str) -> None:
    with pytest.raises(FilesRefused, match="bucket"):
        S3Files(path)


def test_an_endpoint_is_an_address_without_secrets() -> None:
    assert endpoint_of("https://minio:9000/") == "https://minio:9000"
    for wrong in ("minio:9000", "https://", "http://h:0", "http://user:secret@host", "http://h/bucket", ""):
        with pytest.raises(FilesRefused, match="give http://HOST:PORT") as refusal:
            endpoint_of(wrong)
        assert "secret" not in str(refusal.value)


def test_no_error_and_no_text_of_a_store_has_a_secret(opened: Open, s3: S3Server, tmp_path: Path) -> None:
    files = opened("s3://copies/secret")
    s3.fails(("PUT", "secret/a", "403 SignatureDoesNotMatch"))
    files.put_if_absent("first", b"")
    with pytest.raises(FilesRefused) as refusal:
        files.put_if_absent("a", b"")
    assert "hush" not in f"{refusal.value!r} {files!r} {vars(files)}"


def test_a_file_that_was_never_there_does_not_move(opened: Open) -> None:
    files = opened("s3://copies/absent")
    with pytest.raises(AbsentFile, match="s3://copies/absent/staging/a to s3://copies/absent/b"):
        files.move_if_absent("staging/a", "b")
    assert not files.exists("staging")  # no marker of a folder that was not there
