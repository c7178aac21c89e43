"""Files on a real HDFS, by a JVM and by WebHDFS: the contract of all stores, and errors when HDFS does not serve."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from squall.stores.files import Files, FilesError, FilesRefused, FilesUnavailable, OpenStore
from squall.stores.java.hadoop import HadoopFiles, Jvm
from squall.stores.webhdfs import WebHdfsFiles
from squall_io.spark.manifest.layout import TMP
from squall_io.spark.stores import open_files
from tests.files_contract import FilesContract
from tests.hdfs_servers import HdfsServer
from tests.zookeeper_servers import eventually

pytestmark = pytest.mark.slow

#: Java's `HdfsConstants.QUOTA_DONT_SET`.
NO_QUOTA = 2**63 - 1


@pytest.fixture(scope="module")
def jvm(hdfs: HdfsServer) -> Iterator[Jvm]:
    """A JVM for the tests of this file that do it no harm."""
    own = Jvm.own({"spark.hadoop.dfs.replication": "2"})
    yield own
    own.close()


def by_webhdfs(hdfs: HdfsServer, path: str) -> OpenStore:
    return open_files(path, conf={"squall.webhdfs.address": hdfs.webhdfs})


@pytest.fixture
def both(hdfs: HdfsServer, hdfs_path: str, jvm: Jvm) -> list[Files]:
    """A store of each kind, each over a table of this test alone."""
    return [HadoopFiles(f"{hdfs_path}/1", jvm.lent()), by_webhdfs(hdfs, f"{hdfs_path}/2")]


class TestHadoopFiles(FilesContract):
    """The contract of all stores."""

    @pytest.fixture
    def files(self, hdfs_path: str, jvm: Jvm) -> Files:
        return HadoopFiles(hdfs_path, jvm.lent())

    @pytest.fixture
    def other(self, hdfs_path: str, jvm: Jvm) -> Files:
        return HadoopFiles(hdfs_path, jvm.lent())


class TestWebHdfsFiles(FilesContract):
    """The contract of all stores, and the same table through both."""

    @pytest.fixture
    def files(self, hdfs: HdfsServer, hdfs_path: str) -> Files:
        return by_webhdfs(hdfs, hdfs_path)

    @pytest.fixture
    def other(self, hdfs_path: str, jvm: Jvm) -> Files:
        return HadoopFiles(hdfs_path, jvm.lent())


def test_a_long_folder_is_listed_completely(hdfs: HdfsServer, hdfs_path: str, jvm: Jvm) -> None:
    files = HadoopFiles(hdfs_path, jvm.lent())
    made = [f"{n:04d}" for n in range(210)]  # the NameNode gives 100 at a time
    system, path = admin(hdfs, jvm), jvm.java.org.apache.hadoop.fs.Path
    for name in made:
        system.mkdirs(path(f"{hdfs_path}/many/{name}"))
    assert [status.name for status in files.list("many")] == made
    assert by_webhdfs(hdfs, hdfs_path).list("many") == files.list("many")


def test_a_table_whose_path_is_a_file_is_refused_by_its_path(
    hdfs: HdfsServer, hdfs_path: str, jvm: Jvm
) -> None:
    by_webhdfs(hdfs, hdfs_path).put_if_absent("a", b"1")
    for files in (HadoopFiles(f"{hdfs_path}/a", jvm.lent()), by_webhdfs(hdfs, f"{hdfs_path}/a")):
        with pytest.raises(FilesRefused, match=f"cannot list {hdfs_path}/a: it is a file; give another path"):
            files.list("")
    HadoopFiles(f"{hdfs_path}/b", jvm.lent()).put_if_absent("b/c", b"1")
    assert [status.path for status in HadoopFiles(f"{hdfs_path}/b", jvm.lent()).list("b")] == ["b/c"]


def admin(hdfs: HdfsServer, jvm: Jvm) -> Any:
    """Hadoop's client of the NameNode, which can do what `hdfs dfsadmin` can."""
    return jvm.java.org.apache.hadoop.fs.FileSystem.get(jvm.java.java.net.URI(hdfs.url), jvm.configuration)


def test_safe_mode_is_named_and_may_pass(hdfs: HdfsServer, both: list[Files], jvm: Jvm) -> None:
    for files in both:
        files.put_if_absent("a", b"1")
    action = jvm.java.org.apache.hadoop.fs.SafeModeAction
    admin(hdfs, jvm).setSafeMode(action.ENTER)
    try:
        for files in both:
            with pytest.raises(FilesUnavailable, match="safe mode"):
                files.put_if_absent("b", b"1")
            assert files.read("a") == b"1"
    finally:
        admin(hdfs, jvm).setSafeMode(action.LEAVE)
    assert [files.put_if_absent("b", b"1") for files in both] == [True, True]


def test_an_exhausted_quota_is_refused_and_leaves_nothing(
    hdfs: HdfsServer, both: list[Files], jvm: Jvm
) -> None:
    for files in both:
        files.put_if_absent("a", b"1")
    # The table, its file, _squall and _squall/tmp are four; one more is the temporary file, and the folder exceeds the quota.
    for files in both:
        admin(hdfs, jvm).setQuota(jvm.java.org.apache.hadoop.fs.Path(files.root), 5, NO_QUOTA)
        with pytest.raises(FilesRefused, match="quota"):
            files.put_if_absent("folder/b", b"1")
        assert files.list(TMP) == []


def test_a_user_without_permission_is_refused_by_name(hdfs: HdfsServer, hdfs_path: str) -> None:
    by_webhdfs(hdfs, hdfs_path).put_if_absent("a", b"1")
    stranger = WebHdfsFiles(hdfs_path, hdfs.webhdfs, user="stranger")
    assert stranger.read("a") == b"1"
    for call in (
        lambda: stranger.put_if_absent("b", b"1"),
        lambda: stranger.replace("a", b"1"),
        lambda: stranger.move_if_absent("a", "b"),
        lambda: stranger.delete("a"),
    ):
        with pytest.raises(FilesRefused, match=r"(?s)user=stranger.*permission on this folder"):
            call()


@pytest.mark.parametrize(
    "path, kind, text",
    [
        ("hdfs://127.0.0.1:1/t", FilesUnavailable, "is HDFS running there"),
        ("hdfs://no-such-host.invalid:9000/t", FilesRefused, "is the host's name right"),
        ("hdfs:///t", FilesRefused, "it names no host"),
        ("gopher://host/t", FilesRefused, "is the scheme right"),
    ],
)
def test_a_wrong_path_is_named_with_advice(jvm: Jvm, path: str, kind: type[FilesError], text: str) -> None:
    with pytest.raises(kind, match=text) as raised:
        open_files(path, jvm=jvm.lent()).list("")
    assert str(raised.value).startswith(f"cannot {'list' if kind is FilesUnavailable else 'open'} {path}")
    assert "\n" not in str(raised.value)


def test_without_atomic_rename_nothing_is_written_without_consent(
    hdfs: HdfsServer, hdfs_path: str, jvm: Jvm, caplog: pytest.LogCaptureFixture
) -> None:
    by_webhdfs(hdfs, hdfs_path).put_if_absent("a", b"1")
    other = hdfs_path.replace(hdfs.url, f"webhdfs://{hdfs.webhdfs}")  # Squall takes it for any other scheme
    with open_files(other, jvm=jvm.lent()) as reader:
        assert reader.read("a") == b"1"
        for call in (
            lambda: reader.put_if_absent("b", b"1"),
            lambda: reader.replace("a", b"1"),
            lambda: reader.move_if_absent("a", "b"),
            lambda: reader.delete("a"),
        ):
            with pytest.raises(FilesRefused, match=r"no rename on webhdfs://.*squall\.unsafe\.store=true"):
                call()
    assert "may be duplicated or" not in caplog.text
    with open_files(other, jvm=jvm.lent(), conf={"squall.unsafe.store": "true"}) as writer:
        with pytest.raises(FilesRefused) as raised:
            writer.delete("a")
        assert "jersey" in str(raised.value)  # it was tried: PySpark lacks a jar for it
    assert "may be duplicated or" in caplog.text


def test_the_jvm_of_a_session_stays_and_one_of_our_own_ends(hdfs_path: str, jvm: Jvm) -> None:
    own = Jvm.own({"spark.hadoop.dfs.replication": "2"})
    process = own.gateway.proc
    session: Any = SimpleNamespace(
        _jsc=object(),
        sparkContext=SimpleNamespace(
            _gateway=jvm.gateway, _jsc=SimpleNamespace(hadoopConfiguration=lambda: jvm.configuration)
        ),
    )
    with HadoopFiles(hdfs_path, own) as first, open_files(hdfs_path, session=session) as second:
        assert first.put_if_absent("a", b"1")
        assert second.read("a") == b"1"
        assert isinstance(second, HadoopFiles)
    assert process.poll() is not None
    assert jvm.java.java.lang.System.currentTimeMillis() > 0
    first.close()


def test_a_killed_jvm_is_distinguished_from_an_unreachable_hdfs(hdfs_path: str) -> None:
    own = Jvm.own({})
    with HadoopFiles(hdfs_path, own) as files:
        files.put_if_absent("a", b"1")
        own.gateway.proc.kill()
        own.gateway.proc.wait()
        for call in (lambda: files.read("a"), lambda: files.put_if_absent("b", b"1")):
            with pytest.raises(FilesUnavailable, match="the JVM of Spark does not answer"):
                call()


def test_a_store_recovers_when_the_namenode_is_back(troubled_hdfs: HdfsServer, both: list[Files]) -> None:
    for files in both:
        files.put_if_absent("a", b"1")
    troubled_hdfs.namenode.kill()
    for files in both:
        for call in (partial(files.list, ""), partial(files.put_if_absent, "b", b"1")):
            with pytest.raises(FilesUnavailable, match=f"{files.root}.*;"):
                call()
    troubled_hdfs.start()
    for files in both:
        # A DataNode that reads or writes for WebHDFS may find its own connection to the NameNode closed, once.
        eventually(partial(_is_taken, files, "b", b"2"))
        eventually(partial(_is_read, files, "a", b"1"))
        eventually(partial(_is_read, files, "b", b"2"))
        # Each of the DataNodes may: the next test must not meet the other one.
        eventually(partial(_takes_many, files, 12))


def _takes_many(files: Files, count: int) -> bool:
    """Whether a store accepts this many files in a row."""
    return all(_is_taken(files, f"many/{number}", b"3") for number in range(count))


def _is_read(files: Files, path: str, data: bytes) -> bool:
    """Whether a file has these bytes, read with retries; other bytes would be an error."""
    try:
        found = files.read(path)
    except FilesUnavailable:
        return False
    assert found == data
    return True


def _is_taken(files: Files, path: str, data: bytes) -> bool:
    """Whether a store has accepted a file, with retries."""
    try:
        return files.put_if_absent(path, data) or files.read(path) == data
    except FilesUnavailable:
        return False


def test_spark_connect_reaches_hdfs_by_webhdfs_and_reports_it(hdfs: HdfsServer, hdfs_path: str) -> None:
    connect = cast(Any, SimpleNamespace())  # it has no `_jsc`
    with pytest.raises(FilesRefused, match=r"set squall\.webhdfs\.address to"):
        open_files(hdfs_path, session=connect)
    with pytest.raises(FilesRefused, match="abfs:// needs one"):
        open_files("abfs://bucket/t", session=connect)
    with open_files(
        hdfs_path, session=connect, conf={"squall.webhdfs.address": f"http://{hdfs.webhdfs}"}
    ) as files:
        assert files.put_if_absent("a", b"1")


def test_a_path_of_viewfs_is_treated_like_hdfs(hdfs: HdfsServer, hdfs_path: str, jvm: Jvm) -> None:
    mounts = jvm.java.org.apache.hadoop.conf.Configuration(jvm.configuration)
    mounts.set("fs.viewfs.mounttable.here.link./mine", hdfs_path)
    with open_files("viewfs://here/mine/t", jvm=Jvm(jvm.gateway, mounts)) as files:
        assert files.put_if_absent("a/b", b"1")
        assert not files.put_if_absent("a/b", b"2")
        assert not files.move_if_absent("a/b", "a/b")
        assert files.move_if_absent("a/b", "c/d")
        files.replace("c/d", b"3")
        assert [status.path for status in files.walk("c")] == ["c/d"]
    assert by_webhdfs(hdfs, hdfs_path).read("t/c/d") == b"3"
