"""`squall pipe`: rows go from an address to an address, here or on a cluster; mistakes are named without a traceback."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from squall.packages.archives import check
from tests.kafka_servers import KafkaServer
from tests.squall_cli.run_process import environment
from tests.squall_cli.taking_nimbus import TakingNimbus, taking_nimbus

SECONDS = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "clean.py").write_text(
        "import my_words\n\ndef clean(row):\n    return {'word': my_words.upper(row['line'])} if row['line'] else None\n"
    )
    (tmp_path / "my_words.py").write_text("def upper(word):\n    return word.upper()\n")
    (tmp_path / "in.txt").write_text("a\n\nb\n")
    return tmp_path


def squall_pipe(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "squall_cli", "pipe", *arguments],
        cwd=folder,
        env=environment(HOME=str(folder), XDG_STATE_HOME=str(folder), **env),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def rows(folder: Path) -> list[str]:
    return sorted(
        json.loads(line)["word"]
        for path in folder.iterdir()
        if path.is_file()
        for line in path.read_text().splitlines()
    )


def test_rows_go_through_a_function_on_this_machine(folder: Path) -> None:
    source, sink = f"file:{folder}/in.txt?follow=false", f"file:{folder}/out?format=jsonl&fields=word"
    done = squall_pipe(folder, source, sink, "--map", "clean.py:clean", "--name", "words")
    assert done.returncode == 0, done.stderr
    assert rows(folder / "out") == ["A", "B"] and "words completed in" in done.stdout


def test_a_file_lists_pipes(folder: Path) -> None:
    (folder / "both.yaml").write_text(
        "conf: {topology.max.spout.pending: 5}\n"
        "pipes:\n"
        f"- {{source: 'file:{folder}/in.txt?follow=false', map: 'clean.py:clean', tasks: 2,\n"
        f"   sink: 'file:{folder}/one?format=jsonl&fields=word'}}\n"
        f"- {{source: 'file:{folder}/in.txt?follow=false', sink: 'file:{folder}/two'}}\n"
    )
    done = squall_pipe(folder, "both.yaml")
    assert done.returncode == 0, done.stderr
    assert rows(folder / "one") == ["A", "B"] and "both completed in" in done.stdout
    assert "".join(path.read_text() for path in (folder / "two").iterdir() if path.is_file()) == "a\n\nb\n"


@pytest.mark.slow
def test_rows_go_to_kafka_and_from_there_to_a_database(folder: Path, kafka: KafkaServer) -> None:
    topic, database = kafka.create("words", 2), folder / "words.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE words (word TEXT PRIMARY KEY, times INTEGER)")
    rows = [{"word": word, "times": times} for times, word in enumerate("abcba")]
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = f"file:{folder}/in.jsonl?format=jsonl&schema=word string, times long&follow=false"
    done = squall_pipe(folder, source, f"kafka://{kafka.servers}/{topic}?key=word")
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(message.value())["times"] for message in kafka.read(topic)) == [0, 1, 2, 3, 4]
    sink = f"sqlite:///{database}?table=words&columns=word,times&key=word"
    done = squall_pipe(folder, f"kafka://{kafka.servers}/{topic}", sink, "--seconds", "4")
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(database)) as connection:
        found = dict(connection.execute("SELECT word, times FROM words").fetchall())
    assert found == {"a": 4, "b": 3, "c": 2}


@pytest.fixture
def nimbus(tmp_path: Path) -> Iterator[TakingNimbus]:
    (tmp_path / "files").mkdir()
    with taking_nimbus(tmp_path / "files") as running:
        yield running


def test_a_pipe_is_submitted_with_the_modules_of_its_function(folder: Path, nimbus: TakingNimbus) -> None:
    done = squall_pipe(
        folder, f"file:{folder}/in.txt", f"file:{folder}/out?fields=word", "--map", "clean.py:clean", "--submit",
        "--tasks", "3", "-n", "2", SQUALL_NIMBUS=nimbus.url,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (submission,) = nimbus.submissions.values()
    assert submission.topology.name == "pipe" and submission.conf["topology.workers"] == 2
    assert {each.parallelism for each in submission.topology.components} == {3}
    code = check(nimbus.folder / submission.files["code"], 1 << 20, 1 << 20)
    assert code.names == ("clean.py", "my_words.py")


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (["file:/in?folow=no", "file:/out"], 1, "no option 'folow'; did you mean 'follow'?"),
        (["file:/in", "ftp:/out"], 1, "no scheme 'ftp'"),
        (["file:/in", "file:/out?fields=word", "--map", "clean.py:claen"], 1, "did you mean 'clean'?"),
        (["file:/in", "file:/out?fields=word", "--map", "clean.py"], 2, "give FILE:NAME"),
        (["file:/in", "file:/out?fields=word", "--map", "my_words.py:__doc__"], 1, "it must be a function"),
        (["none.yaml"], 1, "cannot read none.yaml: No such file or directory"),
        (["clean.py"], 1, "clean.py is no YAML"),
        (["in.txt"], 1, "in.txt: it has no list `pipes`"),
        (["bad.yaml"], 1, "bad.yaml: pipe 1 has 'sourc', and may have"),
        (["file:/in", "file:/out", "--wait"], 2, "give them with --submit"),
        (["file:/in", "file:/out", "--submit", "--seconds", "5"], 2, "leave it out with --submit"),
        (["both.yaml", "--map", "clean.py:clean"], 2, "in the file that lists the pipes"),
    ],
)
def test_mistakes_are_named(folder: Path, arguments: list[str], status: int, why: str) -> None:
    (folder / "bad.yaml").write_text("pipes: [{sourc: 'file:/in', sink: 'file:/out'}]\n")
    done = squall_pipe(folder, *arguments)
    assert done.returncode == status and why in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
