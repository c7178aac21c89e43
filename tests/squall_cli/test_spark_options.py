"""Mistakes in --master, --conf and paths are reported like a sink's arguments: in one sentence, before Java is started."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall_cli.main import squall

#: The words of each command, given the path that it reads and the one that it writes.
COMMANDS: dict[str, Callable[[str, str], Sequence[str]]] = {
    "table": lambda source, target: ["table", source],
    "reprocess": lambda source, target: [
        *("reprocess", "--sql", "select 1", "--input", source, "--output", target)
    ],
    "replay": lambda source, target: [
        *("replay", "no_such_file.py", "--source", f"lines={source}", "--output", f"count={target}")
    ],
}
WEBHDFS = ["--conf", "squall.webhdfs.address=host:9870"]


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark is not installed, and nothing may be started."""
    for name in ("pyspark", "py4j", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)


def run(
    command: str, *options: str, source: str = "/no/such/table", target: str = "/no/such/result"
) -> Result:
    arguments = [*COMMANDS[command](source, target), *options]
    return CliRunner().invoke(squall, arguments, prog_name="squall")


def error_line(result: Result) -> str:
    """The error, on one line."""
    assert (result.exit_code, "Traceback" in result.output) == (2, False), result.output
    return " ".join(result.output.split()).partition("Error: ")[2]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--master", "foo"], "master is 'foo', which Spark does not take: write one of local, local[*], "),
        (["--master", "spark://host"], "did you mean 'spark://HOST:7077'?"),
        (["--master", ""], "master is ''"),
        (["--conf", "spark.master=yarn-client"], "master is 'yarn-client'"),
        (["--conf", "executor.memory=2g"], "conf has 'executor.memory' (str): its names begin with 'spark.'"),
        (["--conf", "squal.unsafe.store=true"], "did you mean 'squall.unsafe.store'?"),
        (["--conf", "squall.webhdfs.adress=h:1"], "did you mean 'squall.webhdfs.address'?"),
        (["--conf", "squall.webhdfs.address=host:x"], "'host:x' is not a WebHDFS address"),
        (["--conf", "squall.unsafe.store=yes"], "'yes' for squall.unsafe.store: give true or false"),
        (
            [
                "--master",
                "sc://host",
                "--conf",
                "spark.driver.memory=2g",
                "--conf",
                "spark.sql.warehouse.dir=/w",
            ],
            "conf has 'spark.driver.memory', which Spark reads when a server starts: sc://host runs already; leave it out,",
        ),
    ],
    ids=["master", "spark", "empty", "in-conf", "no-prefix", "squal", "own", "address", "unsafe", "server"],
)
def test_an_invalid_master_or_setting_is_wrong_usage(command: str, options: Sequence[str], said: str) -> None:
    assert said in error_line(run(command, *options))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("hdfs://h:port/a", "'port' is not a port"),
        ("http://h/a", "http:// is not a file system"),
        ("hdfs://h h/a", "'h h' is not a host name"),
        ("hdfs://h:9000", "the root of a file system"),
    ],
)
def test_an_invalid_path_is_wrong_usage_in_every_option(command: str, path: str, said: str) -> None:
    assert said in error_line(run(command, source=path))
    if command != "table":
        assert said in error_line(run(command, target=path))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_that_a_session_server_does_not_reach_is_wrong_usage(command: str) -> None:
    for connect in (["--master", "sc://host"], ["--conf", "spark.master=sc://host"]):
        said = error_line(run(command, *connect, source="hdfs://host:9000/t"))
        assert "path 'hdfs://host:9000/t' cannot be read: a session of Spark Connect has no JVM here" in said
        assert "set squall.webhdfs.address" in said
        assert "abfs:// needs one" in error_line(run(command, *connect, source="abfs://b/t"))


@pytest.mark.parametrize("command", ["reprocess", "replay"])
def test_a_result_is_not_written_where_a_sink_would_not_write(command: str) -> None:
    said = error_line(run(command, target="abfs://bucket/t"))
    assert "path 'abfs://bucket/t' cannot be written to" in said and "squall.unsafe.store=true" in said
    assert "'_squall' in it is the folder" in error_line(run(command, target="/x/_squall/y"))
    connect = ["--master", "sc://host", *WEBHDFS]
    assert "abfs:// needs one" in error_line(run(command, *connect, source="hdfs://h/t", target="abfs://b/t"))


@pytest.mark.parametrize("command", ["table", "reprocess"])
def test_a_table_to_read_must_not_be_in_the_folder_of_another_one(command: str) -> None:
    assert "'_squall' in it is the folder" in error_line(run(command, source="/x/_squall"))


def test_files_to_replay_may_be_anywhere() -> None:
    assert "there is no file 'no_such_file.py'" in error_line(run("replay", source="/x/_squall/readers"))


def test_all_mistakes_are_reported_at_once() -> None:
    said = error_line(run("reprocess", "--master", "foo", target="abfs://bucket/t"))
    assert "master is 'foo'" in said and "path 'abfs://bucket/t' cannot be written to" in said


def test_valid_options_are_accepted(tmp_path: Path) -> None:
    options = ["--master", "local[2, 3]", "--conf", "spark.driver.memory=1g", *WEBHDFS]
    result = run("table", *options, source=str(tmp_path))
    assert (result.exit_code, "there is no Squall table at" in result.output) == (1, True)
