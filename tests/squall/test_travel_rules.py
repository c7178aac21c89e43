"""What a topology may bring: names in an archive of code, and lines of requirements."""

from __future__ import annotations

import re
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from squall.packages.travel_rules import MOST_REQUIREMENTS_BYTES, problem_of_requirements, problems_of_code

POINTS_TO_FILES = [
    "-e .", "-e.", "--editable=.", "--edit .", "-r other.txt", "-rother.txt", "--requirement other.txt", "--req other.txt",
    "-c limits.txt", "--constraint=limits.txt", "-f wheels", "--find-links wheels", "--pre -r other.txt", "-ifile:///x",
    ".", "..", "./pkg", "../pkg", "/opt/x.whl", "pkg/part", "pkg\\part", "~/pkg", "x-1.0-py3-none-any.whl", "x.zip ; True",
    "x @ file:///etc", "x@file:etc", "x @ FILE:///etc", "x @ ./pkg", "file:///x", "git+file:///x", "--index-url=file:///x",
    "-\\\nr other.txt", "x @ \\\n file:///etc",
]  # fmt: skip
EVERYTHING_ELSE = [
    "", "six", "six==1.16 # as in -e .", "# -r other.txt", "x >= 1 ; python_version > '3.9'", "x @ https://host/a/x.whl",
    "git+https://host/a/b@main", "https://host/x.tar.gz", "--index-url https://host/simple", "-i https://host/simple", "--pre",
    "--require-hashes", "x==1 --hash=sha256:a/b", "x==1 \\\n    --hash=sha256:ab", "--no-binary :all:", "profile",
    "# a comment that ends in \\\nsix", "x @ https://host/'",
]  # fmt: skip


@pytest.mark.parametrize("line", POINTS_TO_FILES)
def test_a_line_that_points_to_files_of_the_submitter_is_found_and_located(line: str) -> None:
    found = problem_of_requirements(f"# fine\nsix==1.16\n{line}\nother\n".encode())
    assert found is not None and found.startswith("line 3: ") and "no host has" in found


@pytest.mark.parametrize("line", EVERYTHING_ELSE)
def test_every_other_line_is_accepted(line: str) -> None:
    assert problem_of_requirements(f"six\n{line}\nother\n".encode()) is None


@pytest.mark.parametrize(
    "line", ["humanize==", "six=1.16", "six>=1 <2", "six[a] ~= ; True", "six==1,==", "six>=,<2 --hash=x"]
)
def test_an_incomplete_version_is_found_here_and_not_by_pip_on_a_host(line: str) -> None:
    found = problem_of_requirements(f"numpy\n{line}\n".encode())
    assert found is not None and found.startswith("line 2: ") and "not a requirement that pip reads" in found


@pytest.mark.parametrize(
    "line",
    [
        "six >=1.10, <2 ,!=1.11.*", "six[a, b]~=1.4", "six===1!2.0+local", "six==${VERSION}", "six (>=1)", "six<2,", "six",
        "six@https://host/a?b==", "six==1 --global-option='='",
    ],
)  # fmt: skip
def test_versions_that_pip_reads_are_accepted(line: str) -> None:
    assert problem_of_requirements(line.encode()) is None


def test_the_last_line_counts_even_if_it_is_continued() -> None:
    assert problem_of_requirements(b"six\n-r other.txt \\") is not None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"# \xe9\n", "not UTF-8"),
        (b"six\0", "zero byte"),
        (b"#" * (MOST_REQUIREMENTS_BYTES + 1), "at most"),
    ],
    ids=["latin", "zero", "long"],
)
def test_text_that_no_person_writes_is_refused(data: bytes, said: str) -> None:
    assert re.search(said, problem_of_requirements(data) or "")


def test_text_of_the_greatest_length_and_with_a_byte_order_mark_is_accepted() -> None:
    assert problem_of_requirements(b"\xef\xbb\xbfsix\n".ljust(MOST_REQUIREMENTS_BYTES, b"#")) is None


@pytest.mark.parametrize(
    ("place", "whose"),
    [
        ("worker.py", "Squall has"),
        ("supervisor/__init__.py", "Squall has"),
        ("squall" + EXTENSION_SUFFIXES[-1], "Squall has"),
        ("topology_api.pyc", "Squall has"),
        ("cloudpickle/__init__.pyc", "Squall itself needs"),
        ("zmq.py", "Squall itself needs"),
        ("queue.py", "standard library"),
        ("json/__init__.py", "standard library"),
    ],
)
def test_a_module_that_would_hide_one_of_the_workers_cannot_travel(place: str, whose: str) -> None:
    found = problems_of_code(["words.py", place, "my_package/worker.py"])
    assert list(found) == [place] and whose in found[place] and "rename it" in found[place]


def test_files_that_no_import_would_find_instead_may_have_any_name() -> None:
    assert (
        problems_of_code(["worker/data.csv", "json/x.py", "mine/json.py", "zmq.txt", "squall", "words.py"])
        == {}
    )
