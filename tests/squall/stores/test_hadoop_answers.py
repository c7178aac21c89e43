"""The meaning of Hadoop's answers, without Hadoop: exceptions by their classes, invalid WebHDFS answers."""

from __future__ import annotations

import http.client
import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from squall.stores.files import (
    AbsentFile,
    FilesError,
    FilesFull,
    FilesRefused,
    FilesUnavailable,
    FileTaken,
    NotServed,
)
from squall.stores.hadoop_errors import Thrown, error_of
from squall.stores.webhdfs import WebHdfsFiles

IO = "java.io.IOException"


def thrown(*classes: str, message: str = "") -> Thrown:
    return Thrown([*classes, IO, "java.lang.Exception"], message)


@pytest.mark.parametrize(
    "chain, kind",
    [
        ([thrown("java.io.FileNotFoundException")], AbsentFile),
        ([thrown("org.apache.hadoop.fs.FileAlreadyExistsException")], FileTaken),
        ([thrown("org.apache.hadoop.security.AccessControlException")], FilesRefused),
        ([thrown("org.apache.hadoop.hdfs.server.namenode.SafeModeException")], FilesUnavailable),
        ([thrown("java.net.ConnectException", "java.net.SocketException")], NotServed),
        ([thrown("java.lang.IllegalArgumentException")], FilesRefused),
        ([thrown("of.none.KnownException")], FilesUnavailable),
        # an unspecific class gives way to its cause, and an unknown one to a class above it
        ([thrown("java.lang.RuntimeException"), thrown("java.net.UnknownHostException")], FilesRefused),
        (
            [thrown("java.lang.IllegalArgumentException"), thrown("java.net.SocketTimeoutException")],
            FilesUnavailable,
        ),
        (
            [
                thrown(
                    "org.apache.hadoop.hdfs.protocol.NewQuotaException",
                    "org.apache.hadoop.hdfs.protocol.QuotaExceededException",
                )
            ],
            FilesFull,
        ),
    ],
)
def test_the_class_of_an_exception_decides_whether_to_retry(
    chain: list[Thrown], kind: type[FilesError]
) -> None:
    assert type(error_of("cannot list x", chain)) is kind


def test_the_text_of_an_error_is_one_line_with_call_reason_and_advice() -> None:
    message = (
        "Call From a to b failed: Connection refused; For more details see:  http://wiki\n\tat java.net\n"
    )
    error = error_of("cannot list hdfs://b/t", [thrown("java.net.ConnectException", message=message)])
    assert str(error) == (
        "cannot list hdfs://b/t: Call From a to b failed: Connection refused (ConnectException);"
        " is HDFS running there, and are host and port right?"
    )
    assert "(Odd)" not in str(error_of("cannot list x", [Thrown(["a.b.Out$Odd"], "")]))
    assert str(error_of("cannot list x", [Thrown(["a.b.Out$Odd"], "")])) == "cannot list x: Odd"
    assert len(str(error_of("cannot list x", [Thrown([IO], "y" * 9_999)]))) < 400


def test_a_missing_datanode_is_reported_with_advice() -> None:
    message = "File /a could only be written to 0 of the 1 minReplication nodes."
    error = error_of("cannot write x", [Thrown([IO], message)])
    assert type(error) is FilesUnavailable
    assert str(error).endswith("there is no DataNode that runs and has room")


@contextmanager
def serving(status: int, body: bytes) -> Iterator[str]:
    """A server that answers everything alike, except that it sends 5 of 9 bytes for "/data"."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cut = self.path.startswith("/data")
            answer = b"12345" if cut else body.replace(b"HERE", b"127.0.0.1:%d" % server.server_port)
            self.send_response(status)
            self.send_header("Content-Length", str(9 if cut else len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "status, body, kind, text",
    [
        (200, b"<html>the UI of something else</html>", FilesRefused, "does not answer like WebHDFS"),
        (200, b'{"FileStatuses": "of something else"}', FilesRefused, "does not answer like WebHDFS"),
        (200, b"", FilesRefused, "does not answer like WebHDFS"),
        (401, b"<html>Kerberos</html>", FilesRefused, "HTTP status 401; this cluster wants a sign-in"),
        (404, b"not here", FilesRefused, "HTTP status 404"),
        (503, b"overloaded", FilesUnavailable, "HTTP status 503"),
        (403, b'{"RemoteException": "?"}', FilesRefused, "HTTP status 403"),
    ],
)
def test_another_server_than_webhdfs_is_recognised(
    status: int, body: bytes, kind: type[FilesError], text: str
) -> None:
    with serving(status, body) as address:
        files = WebHdfsFiles("hdfs://h:1/t", address, user="u")
        with pytest.raises(kind, match=f"cannot list hdfs://h:1/t/a: .*{text}"):
            files.list("a")


STANDBY = (
    b'{"RemoteException": {"javaClassName": "org.apache.hadoop.ipc.StandbyException", "message": "standby"}}'
)
FOUND = b'{"FileStatuses": {"FileStatus": [{"pathSuffix": "b", "type": "FILE", "length": 1, "modificationTime": 0}]}}'


def test_of_several_namenodes_the_active_one_is_found() -> None:
    with serving(403, STANDBY) as standby, serving(200, FOUND) as active:
        files = WebHdfsFiles("hdfs://h/t", f"127.0.0.1:1, {standby},{active}", user="u")
        for _ in range(2):
            assert [status.name for status in files.list("a")] == ["b"]
        assert files._active == 2
        files = WebHdfsFiles("hdfs://h/t", f"127.0.0.1:1,{standby}", user="u")
        with pytest.raises(FilesUnavailable, match="this NameNode is not the active one"):
            files.list("a")


def test_a_call_that_may_have_been_done_is_not_made_at_another_namenode() -> None:
    with serving(503, b"overloaded") as first, serving(200, FOUND) as second:
        files = WebHdfsFiles("hdfs://h/t", f"{first},{second}", user="u")
        with pytest.raises(FilesUnavailable, match="503"):
            files.list("a")
        assert [status.name for status in files.list("a")] == ["b"], "the next call begins with the other one"


def test_a_truncated_file_is_not_taken_for_a_complete_one() -> None:
    with serving(200, b'{"Location": "http://HERE/data"}') as address:
        files = WebHdfsFiles("hdfs://h:1/t", address, user="u")
        for call in (files.read, files.digest):
            with pytest.raises(FilesUnavailable, match=r"cannot read hdfs://h:1/t/a: .*\(IncompleteRead\)"):
                call("a")


def test_an_untrusted_certificate_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(connection: object) -> None:
        raise ssl.SSLCertVerificationError("self-signed certificate")

    monkeypatch.setattr(http.client.HTTPSConnection, "connect", connect)
    files = WebHdfsFiles("hdfs://h:1/t", "https://h:9871", user="u")
    with pytest.raises(FilesRefused, match=r"h:9871: .*self-signed certificate.* signed by an authority"):
        files.exists("a")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "host:port",
        "ftp://host:1",
        "http://host:1/webhdfs",
        "http://",
        "a b",
        "[::1",
        "h:1,",
        "http://u:secret@h:1",
    ],
)
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(FilesRefused, match="is not a WebHDFS address") as refused:
        WebHdfsFiles("hdfs://h:1/t", address)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("deletion", "raised"),
    [(FilesUnavailable("no answer"), FilesRefused), (RuntimeError("a bug"), RuntimeError)],
)
def test_after_a_refusal_only_errors_of_storage_are_passed_over(
    deletion: Exception, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: str, data: bytes) -> None:
        raise FilesRefused("no permission")

    def delete(path: str) -> None:
        raise deletion

    files = WebHdfsFiles("hdfs://host/table", "host:9870")
    monkeypatch.setattr(files, "_write", write)
    monkeypatch.setattr(files, "delete", delete)
    with pytest.raises(raised):
        files.put_if_absent("a", b"")
