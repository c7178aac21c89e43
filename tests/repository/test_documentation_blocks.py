"""Every code block of the README and of docs/ works; the meaning of tags: see document_blocks.py."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).with_name("document_blocks.py")
#: tests/spark/test_spark_pages.py runs those about Spark, in its session.
DOCUMENTS = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").glob("**/*.md")) if not path.name.startswith("spark")),
]
SECONDS = 100


def run_document(document: Path, folder: Path) -> tuple[int, str]:
    """(exit status, output); no process of a block outlives this call."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SQUALL_")}
    environment["PYTHONPATH"] = str(ROOT)
    process = subprocess.Popen(
        [sys.executable, str(RUNNER), str(document)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        output = process.communicate()[0] + f"\nnot done after {SECONDS} s"
    finally:
        kill_group(process.pid)
    return process.returncode, output


def kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def run_text(folder: Path, text: str) -> tuple[int, str]:
    document = folder / "document.md"
    document.write_text(text)
    return run_document(document, folder)


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_of_a_document_runs(document: Path, tmp_path: Path) -> None:
    assert document.exists()
    if (ROOT / "examples").is_dir():  # the examples are where the commands look for them
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
    status, output = run_document(document, tmp_path)
    assert status == 0, output


def test_blocks_share_a_namespace_and_files_and_run_in_order(tmp_path: Path) -> None:
    status, output = run_text(
        tmp_path,
        "```python\n# first.py\nx = 1\nprint(__name__)\n```\n"
        "```sh\npython -c 'import first' | tee out\n```\n"
        "```console\n$ python -c \\\n>   'print(41 + 1)'\n42\n$ cat out\n__main__\n```\n"
        "- in a list\n  ```python\n  x += 1\n  print('x is', x)\n  ```\n",
    )
    assert (status, output.split()) == (0, ["__main__", "first", "42", "first", "x", "is", "2"])


def test_a_block_of_text_is_not_run(tmp_path: Path) -> None:
    assert run_text(tmp_path, "```text\nexit 1\n```\n") == (0, "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("\n```python\n\n1 / 0\n```\n", "document.md:3: "),
        ("```python\n\n\n1 / 0\n```\n", 'document.md", line 4'),
        ("```sh\nfalse\ntrue\n```\n", "document.md:2: exit status 1"),
        ("```sh\necho $NOBODY_SET_THIS\n```\n", "unbound variable"),
        ("```console\nno command\n```\n", "without a line that begins with"),
        ("```json\n{1}\n```\n", "document.md:2: "),
        ("```ruby\nputs 1\n```\n", "the tag 'ruby' is none of"),
        ("```\nuntagged\n```\n", "the tag '' is none of"),
        ("```python\nx = 1\n", "the fence is never closed"),
    ],
)
def test_a_block_that_fails_is_named_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    status, output = run_text(tmp_path, text)
    assert status == 1
    assert complaint in output


def test_yaml_is_checked_against_the_options_table(tmp_path: Path) -> None:
    status, output = run_text(tmp_path, "```yaml\ntopology.workers: 2\n```\n")
    assert status == 0, output
    status, output = run_text(tmp_path, "```yaml\ntopology.worker: 2\n```\n")
    assert status == 1
    assert "topology.workers" in output, "the nearest option is suggested"
