"""From the command line to a Topology: what is found, and mistakes reported in the user's terms."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall_cli.packing.loading import CannotLoad, WrongSource, load_topology
from topology_api import Topology

GOOD = """
from topology_api import Fields, Spout, TopologyBuilder

class Nothing(Spout):
    outputs = Fields("x")
    def next_tuple(self):
        self.finish()

def topology(name="{name}"):
    builder = TopologyBuilder(name)
    builder.set_spout("nothing", Nothing())
    return builder.build()

made = topology("made")
"""


@pytest.fixture(autouse=True)
def path_and_modules_as_before() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def written(folder: Path, text: str = GOOD, name: str = "my_topology.py") -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


def wrong_source(text: str, *arguments: str) -> str:
    with pytest.raises(WrongSource) as caught:
        load_topology(text, arguments)
    return checked(str(caught.value))


def cannot_load(text: str, *arguments: str) -> str:
    with pytest.raises(CannotLoad) as caught:
        load_topology(text, arguments)
    return checked(str(caught.value))


def checked(message: str) -> str:
    """Any mistake: at most 15 lines, none of them from our code."""
    assert len(message.splitlines()) <= 15
    assert "squall_cli" not in message
    assert "Traceback" not in message
    return message


# What is found


def test_a_function_in_a_file_is_called_with_the_arguments(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert load_topology(file).name == "{name}"
    assert load_topology(file, ("other",)).name == "other"


def test_a_topology_in_a_file_is_found_by_its_name(tmp_path: Path) -> None:
    assert load_topology(f"{written(tmp_path)}:made").name == "made"


def test_classes_of_the_file_travel_by_reference(tmp_path: Path) -> None:
    topology = load_topology(written(tmp_path))
    assert b"my_topology" in topology.pickles["nothing"]
    assert type(topology.load("nothing")) is sys.modules["my_topology"].Nothing
    assert isinstance(pickle.loads(pickle.dumps(topology)), Topology)


def test_the_files_folder_is_first_on_the_path_so_its_neighbours_are_found(tmp_path: Path) -> None:
    written(tmp_path, "answer = 'neighbour'\n", "my_neighbour.py")
    file = written(tmp_path, f"import my_neighbour\n{GOOD}\nname = my_neighbour.answer\n")
    assert load_topology(file).name == "{name}"
    assert sys.path[0] == str(tmp_path)


def test_a_file_name_that_is_no_identifier_works_too(tmp_path: Path) -> None:
    topology = load_topology(written(tmp_path, name="my-topology.py"))
    assert type(topology.load("nothing")).__module__ == "my-topology"


def test_a_module_of_a_package_in_the_working_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "my_package"
    package.mkdir()
    written(package, "", "__init__.py")
    written(package, GOOD)
    monkeypatch.chdir(tmp_path)
    assert load_topology("my_package.my_topology").name == "{name}"
    assert load_topology("my_package.my_topology:made").name == "made"


# Mistakes in the command line


def test_a_missing_file_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    written(tmp_path)
    message = wrong_source(str(tmp_path / "my_topolgy.py"))
    assert message.startswith(f"there is no file '{tmp_path}/my_topolgy.py'")
    assert message.endswith("; did you mean 'my_topology.py'?")
    assert "(nor a folder" in wrong_source(str(tmp_path / "no" / "file.py"))


def test_a_folder_and_a_file_of_another_kind_are_refused(tmp_path: Path) -> None:
    assert "is a folder" in wrong_source(str(tmp_path))
    assert "is not a Python file" in wrong_source(written(tmp_path, name="topology.txt"))


@pytest.mark.parametrize("text", ["", "a b", "my topology:x", "file.py:", "file.py:not-a-name", "a..b"])
def test_an_empty_reference_is_refused(text: str) -> None:
    assert wrong_source(text)


def test_a_missing_module_is_not_blamed_on_the_users_code() -> None:
    assert wrong_source("no_such_package.module").startswith("there is no module 'no_such_package' in ")


def test_arguments_that_do_not_fit_are_reported_with_the_signature(tmp_path: Path) -> None:
    file = written(tmp_path)
    message = wrong_source(file, "a", "b")
    assert "topology(name='{name}')" in message
    assert "too many positional arguments (given: 'a', 'b')" in message
    assert message.endswith(f"  at {file}:9")
    assert "takes no arguments (given: 'a')" in wrong_source(f"{file}:made", "a")
    needs = written(tmp_path, "def topology(path): pass\n", "needs_a_path.py")
    assert "missing a required argument: 'path' (none were given)" in wrong_source(needs)


# Impossible names


@pytest.mark.parametrize(
    "stem", ["worker", "supervisor", "nimbus", "topology_api", "squall", "local_cluster"]
)
def test_a_file_named_like_one_of_our_packages_is_refused_with_advice(tmp_path: Path, stem: str) -> None:
    file = written(tmp_path, name=f"{stem}.py")
    with pytest.raises(CannotLoad) as caught:
        load_topology(file)
    assert "because Squall has a package of that name" in str(caught.value)
    assert f"rename the file, for example to my_{stem}.py" in str(caught.value)


@pytest.mark.parametrize("stem", ["queue", "json", "email", "sys"])
def test_a_file_named_like_a_standard_module_is_refused_with_advice(tmp_path: Path, stem: str) -> None:
    message = cannot_load(written(tmp_path, name=f"{stem}.py"))
    assert "standard library" in message
    assert f"my_{stem}.py" in message


def test_a_neighbour_named_like_one_of_our_packages_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "", "worker.py")
    assert cannot_load(written(tmp_path)).startswith(
        f"{tmp_path}/worker.py: Squall has a package named 'worker'"
    )


def test_a_file_in_a_checkout_of_squall_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "squall_cli").mkdir()
    (tmp_path / "squall_cli" / "main.py").write_text("")
    assert cannot_load(written(tmp_path)).endswith(
        "is a checkout of Squall: move the topology's file to a folder of your own"
    )


def test_a_name_that_is_already_loaded_or_hidden_is_refused(tmp_path: Path) -> None:
    assert "is loaded already, from " in cannot_load(written(tmp_path, name="pytest.py"))
    (tmp_path / "hidden").mkdir()
    written(tmp_path / "hidden", "", "__init__.py")
    assert "rename one of the two" in cannot_load(written(tmp_path, name="hidden.py"))


def test_names_that_no_import_finds_are_refused(tmp_path: Path) -> None:
    assert "give the package's module" in cannot_load(written(tmp_path, name="__init__.py"))
    assert "my_topology_v2.py" in cannot_load(written(tmp_path, name="my_topology.v2.py"))


# Errors in the user's file


def test_a_syntax_error_shows_the_users_line(tmp_path: Path) -> None:
    file = written(tmp_path, "x = 1\ndef topology(:\n")
    message = cannot_load(file)
    assert message.startswith(f"{file} cannot be imported: SyntaxError: ")
    assert "def topology(:" in message
    assert message.endswith(f"  at {file}:2")


def test_an_error_while_importing_shows_the_users_frames(tmp_path: Path) -> None:
    written(tmp_path, "def read():\n    return {}['size']\n", "my_settings.py")
    file = written(tmp_path, "import my_settings\nsize = my_settings.read()\n")
    message = cannot_load(file)
    assert message.startswith(f"{file} cannot be imported: KeyError: 'size'")
    assert f'File "{file}", line 2, in <module>' in message
    assert "importlib" not in message
    assert message.endswith(f"  at {tmp_path}/my_settings.py:2, in read")


def test_a_missing_import_is_reported_with_the_users_line(tmp_path: Path) -> None:
    file = written(tmp_path, "\nimport no_such_library\n")
    message = cannot_load(file)
    assert "ModuleNotFoundError: No module named 'no_such_library'" in message
    assert message.endswith(f"  at {file}:2, in <module>")


def test_a_file_that_ends_the_process_gets_advice(tmp_path: Path) -> None:
    message = cannot_load(written(tmp_path, "import sys\nsys.exit(3)\n"))
    assert "it ended the process (SystemExit: 3)" in message
    assert "if __name__ == '__main__':" in message


def test_a_relative_import_gets_advice(tmp_path: Path) -> None:
    assert "package.module[:NAME]" in cannot_load(written(tmp_path, "from . import x\n"))


def test_a_file_without_a_topology_is_answered_with_its_contents(tmp_path: Path) -> None:
    file = written(tmp_path, "import os\nfrom json import dumps\ndef topologie(): pass\n")
    assert cannot_load(file) == f"{file} has no 'topology'; did you mean 'topologie'?"
    file = written(tmp_path, "def word_count(): pass\n", "other.py")
    assert cannot_load(file).endswith("it has 'word_count': give FILE:NAME for one of these")
    file = written(tmp_path, "", "empty.py")
    assert cannot_load(file).endswith("it must hold a Topology of that name, or a function that returns one")


def test_private_names_of_a_file_without_a_topology_are_not_looked_at(tmp_path: Path) -> None:
    lazy = "class Lazy:\n    @property\n    def __class__(self): raise RuntimeError('too early')\n_lazy = Lazy()\n"
    file = written(tmp_path, f"def topologie(): pass\n{lazy}")
    assert cannot_load(file) == f"{file} has no 'topology'; did you mean 'topologie'?"


def test_a_function_that_raises_shows_the_users_frames_only(tmp_path: Path) -> None:
    file = written(tmp_path, "def topology():\n    return int('x')\n")
    message = cannot_load(file)
    assert message.startswith(f"topology() in {file} failed: ValueError: invalid literal for int()")
    assert message.endswith(f"  at {file}:2, in topology")


def test_the_cause_of_an_error_is_reported_with_it(tmp_path: Path) -> None:
    body = "    try:\n        return {}['size']\n    except KeyError as why:\n        raise ValueError('no size') from why\n"
    message = cannot_load(written(tmp_path, f"def topology():\n{body}"))
    assert "  caused by KeyError: 'size' (" in message
    assert message.endswith("my_topology.py:5, in topology")


def test_an_invalid_topology_is_reported_with_all_its_problems(tmp_path: Path) -> None:
    text = GOOD.replace(
        "return builder", 'builder.set_spout("a/b", Nothing(), parallelism=0)\n    return builder'
    )
    message = cannot_load(written(tmp_path, text.replace('made = topology("made")', "")))
    assert "'a/b'" in message
    assert "parallelism" in message
    file = written(tmp_path, text, "at_import.py")  # the import works: it is the topology that is invalid
    assert cannot_load(file).startswith(f"{file}: topology 'made' has 2 problems:")


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("pass", "returned None (NoneType), not a Topology; is there a 'return builder.build()' at its end?"),
        ("return 3", "returned 3 (int), not a Topology"),
        (
            "from topology_api import TopologyBuilder; return TopologyBuilder('x')",
            "; return builder.build()",
        ),
    ],
)
def test_a_function_that_returns_no_topology_is_reported(tmp_path: Path, body: str, hint: str) -> None:
    assert cannot_load(written(tmp_path, f"def topology(): {body}\n")).endswith(hint)


def test_an_async_function_and_a_value_that_is_no_topology_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "async def topology(): pass\n")
    assert cannot_load(file).endswith("; it must not be an async function")
    file = written(tmp_path, "topology = 3\n", "number.py")
    assert "is 3 (int): it must be a Topology, or a function" in cannot_load(file)
