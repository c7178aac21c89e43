"""The files that travel with a topology: all modules of the user's that it may import, and nothing that the hosts have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from squall.packages.archives import unpack
from squall_cli.packing.loading import load_topology, parse_source
from squall_cli.packing.packing import Package, Resource, gather, included, pack_all
from squall_cli.packing.user_modules import CannotShip
from topology_api import Topology

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = """
from topology_api import Fields, Spout, TopologyBuilder

class Nothing(Spout):
    outputs = Fields("x")
    def next_tuple(self):
        self.finish()

def topology(*arguments):
    builder = TopologyBuilder("packed")
    builder.set_spout("nothing", Nothing())
    return builder.build()
"""
#: Run with only an unpacked archive and Squall on the path: a worker's use of a component.
LOADS = """
import base64, json, sys
from topology_api import Topology
sent = json.load(sys.stdin)
pickles = {name: base64.b64decode(data) for name, data in sent["pickles"].items()}
topology = Topology.from_description(sent["description"], pickles)
component = topology.load("nothing")
print(json.dumps({"module": type(component).__module__, "said": component.say() if hasattr(component, "say") else None}))
"""


@pytest.fixture(autouse=True)
def path_and_modules_as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    sys.path_importer_cache.clear()


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def submitted(
    text: str, *arguments: str, include: tuple[str, ...] = (), resources: tuple[str, ...] = ()
) -> tuple[Topology, Package]:
    """Load and gather as `squall submit` does."""
    before, source = frozenset(sys.modules), parse_source(text)
    home = Path.cwd() if source.file is None else source.file.parent
    includes = included(include, home)
    topology = load_topology(text, arguments)
    confs = [topology.conf, *(component.conf for component in topology.components)]
    return topology, gather(source, before, includes, [Resource.parse(each) for each in resources], confs)


def in_another_process(topology: Topology, package: Package, folder: Path) -> dict[str, str]:
    """The answer of a process that has only the archive: the component's module and its result."""
    (folder / "sent").mkdir()
    archive = next(each.path for each in pack_all(package, folder / "sent"))
    unpack(archive, folder / "unpacked", 1 << 30, 1 << 30)
    pickles = {name: b64encode(data).decode() for name, data in topology.pickles.items()}
    done = subprocess.run(
        [sys.executable, "-c", LOADS],
        input=json.dumps({"description": topology.describe(), "pickles": pickles}),
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{folder / 'unpacked'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


# Modules


def test_another_process_with_only_the_archive_loads_the_component(tmp_path: Path) -> None:
    """The file, a neighbour, a package with data, an import in a function, a resource: all are there."""
    code = (
        "import pathlib\nimport my_helper\nfrom my_package.inner import deep\n"
        + TOPOLOGY
        + "\nNothing.say = lambda self: my_helper.say() + deep() + pathlib.Path(__file__).with_name('words.txt').read_text()\n"
    )
    project = write(
        tmp_path / "project",
        {
            "my_topology.py": code,
            "my_helper.py": "def say():\n    import my_late\n    return my_late.WORD\n",
            "my_late.py": "WORD = 'late '\n",
            "my_package/__init__.py": "",
            "my_package/inner/__init__.py": "",
            "my_package/inner/deep.txt": "deep ",
            "my_package/inner/text.py": "import pathlib\nTEXT = pathlib.Path(__file__).with_name('deep.txt').read_text()\n",
            "words.txt": "words",
            "unrelated.py": "1 / 0\n",
        },
    )
    (project / "my_package/inner/__init__.py").write_text(
        "from .text import TEXT\ndef deep():\n    return TEXT\n"
    )
    topology, package = submitted(str(project / "my_topology.py"), resources=(str(project / "words.txt"),))
    assert sorted(package.code) == [
        "my_helper.py", "my_late.py", "my_package/__init__.py", "my_package/inner/__init__.py",
        "my_package/inner/deep.txt", "my_package/inner/text.py", "my_topology.py", "words.txt",
    ]  # fmt: skip
    answer = in_another_process(topology, package, tmp_path)
    assert answer == {"module": "my_topology", "said": "late deep words"}


def test_a_module_of_a_package_travels_with_the_whole_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write(
        tmp_path / "project",
        {
            "my_app/__init__.py": "",
            "my_app/topologies/__init__.py": "",
            "my_app/topologies/one.py": "from ..shared import say\n"
            + TOPOLOGY
            + "\nNothing.say = lambda self: say()\n",
            "my_app/shared.py": "def say():\n    return 'shared'\n",
            "my_app/not_imported.py": "",
        },
    )
    monkeypatch.chdir(project)
    topology, package = submitted("my_app.topologies.one")
    assert "my_app/not_imported.py" in package.code
    assert in_another_process(topology, package, tmp_path) == {
        "module": "my_app.topologies.one",
        "said": "shared",
    }


def test_a_folder_without_an_init_file_is_a_package_too(tmp_path: Path) -> None:
    files = {
        "my_topology.py": "import my_space.part\n" + TOPOLOGY,
        "my_space/part.py": "",
        "my_space/data.json": "{}",
    }
    _, package = submitted(str(write(tmp_path, files) / "my_topology.py"))
    assert sorted(package.code) == ["my_space/data.json", "my_space/part.py", "my_topology.py"]


def test_folders_that_the_user_has_put_on_the_path_are_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "by_variable", {"my_library/__init__.py": "", "my_library/part.py": ""})
    write(tmp_path / "by_code", {"my_other.py": "", "my_lazy.py": ""})
    monkeypatch.syspath_prepend(str(tmp_path / "by_variable"))
    code = (
        f"import sys\nsys.path.insert(0, {str(tmp_path / 'by_code')!r})\nimport my_library, my_other\n"
        "def later():\n    import my_lazy\n" + TOPOLOGY
    )
    _, package = submitted(str(write(tmp_path / "project", {"my_topology.py": code}) / "my_topology.py"))
    assert sorted(package.code) == [
        "my_lazy.py", "my_library/__init__.py", "my_library/part.py", "my_other.py", "my_topology.py",
    ]  # fmt: skip


def test_installed_packages_are_named_and_do_not_travel(tmp_path: Path) -> None:
    library = write(
        tmp_path / "venv/lib/python3/site-packages", {"their_library.py": "", "their_late.py": ""}
    )
    code = (
        f"import sys\nsys.path.insert(0, {str(library)!r})\nimport json, their_library\n"
        "def later():\n    import their_late, no_such_module\n" + TOPOLOGY
    )
    _, package = submitted(str(write(tmp_path / "project", {"my_topology.py": code}) / "my_topology.py"))
    assert sorted(package.code) == ["my_topology.py"]
    assert package.libraries == ("their_late", "their_library")
    assert package.missing == {"no_such_module": "my_topology.py:5"}


def test_an_import_that_nothing_here_would_find_is_missed_unless_its_failure_is_handled(
    tmp_path: Path,
) -> None:
    code = """
def later(kind):
    if kind:
        from not_there_at_all.part import thing
    try:
        import not_there_either
    except ImportError:
        import not_there_as_a_fallback
    import my_lazy, not_there_by_a_file

try:
    import not_there_and_handled
except ImportError:
    pass
"""
    files = {
        "my_topology.py": "import my_package\n" + code + TOPOLOGY,
        "my_package/__init__.py": "",
        "my_package/tests/test_it.py": "def test():\n    import not_there_for_tests\n",
        "my_lazy.py": "",
    }
    _, package = submitted(str(write(tmp_path, files) / "my_topology.py"))
    assert package.missing == {
        "not_there_at_all": "my_topology.py:5",
        "not_there_as_a_fallback": "my_topology.py:9",
        "not_there_by_a_file": "my_topology.py:10",
    }


def test_imports_used_only_by_the_files_command_line_are_not_required(tmp_path: Path) -> None:
    """An import that a worker may reach is required, though the command line reaches it as well."""
    code = """
def drawn():
    import not_there_for_drawing, their_drawing, my_drawing
    return scaled()

def scaled():
    import not_there_for_scaling

def both():
    import not_there_for_both

@staticmethod
def kept():
    import not_there_for_a_decorator

class Later:
    def call(self):
        both()

if __name__ == "__main__":
    import not_there_for_the_block
    drawn()
    both()
    kept()
    topology()
"""
    in_it = TOPOLOGY.replace(
        "    builder =", "    def later():\n        import not_there_for_us\n    builder ="
    )
    library = write(tmp_path / "venv/lib/python3/site-packages", {"their_drawing.py": ""})
    start = f"import sys\nsys.path.insert(0, {str(library)!r})\n"
    project = write(tmp_path / "project", {"my_topology.py": start + in_it + code, "my_drawing.py": ""})
    _, package = submitted(str(project / "my_topology.py"))
    assert sorted(package.code) == ["my_drawing.py", "my_topology.py"]
    assert package.libraries == ()
    assert sorted(package.missing) == [
        "not_there_for_a_decorator",
        "not_there_for_both",
        "not_there_for_us",
    ]


def test_a_function_of_a_files_command_line_may_be_used_by_another_file(tmp_path: Path) -> None:
    script = "def drawn():\n    import not_there\n\nif __name__ == '__main__':\n    drawn()\n"
    files = {"my_topology.py": "import my_script\n" + TOPOLOGY, "my_script.py": script}
    _, package = submitted(str(write(tmp_path, files) / "my_topology.py"))
    assert package.missing == {"not_there": "my_script.py:2"}


def test_libraries_of_a_packages_tests_are_not_required_on_the_hosts(tmp_path: Path) -> None:
    files = {
        "my_topology.py": "import my_package\n" + TOPOLOGY,
        "my_package/__init__.py": "",
        "my_package/tests/test_it.py": "import pytest\n",
    }
    _, package = submitted(str(write(tmp_path, files) / "my_topology.py"))
    assert "my_package/tests/test_it.py" in package.code
    assert package.libraries == ()


def test_libraries_of_squalls_own_stay_behind_wherever_pip_has_put_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "zmq"]:
        monkeypatch.delitem(sys.modules, name)  # another test may have loaded the real one
    files = {
        "zmq/__init__.py": "",
        "zmq/part.py": "",
        "pyzmq-27.dist-info/METADATA": "",
        "their_library.py": "",
    }
    target = write(tmp_path / "target", files)
    code = f"import sys\nsys.path.insert(0, {str(target)!r})\nimport zmq.part, their_library\n" + TOPOLOGY
    _, package = submitted(str(write(tmp_path / "project", {"my_topology.py": code}) / "my_topology.py"))
    assert sorted(package.code) == ["my_topology.py", "their_library.py"]


def test_caches_hidden_files_and_environments_are_left_out(tmp_path: Path) -> None:
    files = {
        "my_topology.py": "import my_package\n" + TOPOLOGY,
        "my_package/__init__.py": "",
        "my_package/.git/config": "",
        "my_package/.secret": "",
        "my_package/__pycache__/x.cpython-311.pyc": "",
        "my_package/venv/pyvenv.cfg": "",
        "my_package/venv/lib/x.py": "",
        "my_package/my.egg-info/PKG-INFO": "",
        "my_package/kept.txt": "",
    }
    write(tmp_path, files)
    (tmp_path / "my_package" / "round").symlink_to(tmp_path / "my_package")
    (tmp_path / "my_package" / "dead").symlink_to("nowhere")
    _, package = submitted(str(tmp_path / "my_topology.py"))
    assert sorted(package.code) == ["my_package/__init__.py", "my_package/kept.txt", "my_topology.py"]


def test_hooks_travel_though_nothing_imports_them(tmp_path: Path) -> None:
    code = TOPOLOGY.replace('("packed")', '("packed", {"topology.auto.task.hooks": ["my_hooks:Watch"]})')
    _, package = submitted(
        str(write(tmp_path, {"my_topology.py": code, "my_hooks.py": ""}) / "my_topology.py")
    )
    assert "my_hooks.py" in package.code


def test_a_file_whose_name_is_no_identifier_is_found_by_the_other_process(tmp_path: Path) -> None:
    topology, package = submitted(str(write(tmp_path, {"my-topology.py": TOPOLOGY}) / "my-topology.py"))
    assert in_another_process(topology, package, tmp_path)["module"] == "my-topology"


def test_a_module_from_an_archive_is_refused_with_advice(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "my_archive.zip", "w") as archive:
        archive.writestr("my_zipped.py", "")
    code = (
        f"import sys\nsys.path.insert(0, {str(tmp_path / 'my_archive.zip')!r})\nimport my_zipped\n" + TOPOLOGY
    )
    write(tmp_path, {"my_topology.py": code})
    with pytest.raises(CannotShip, match=r"'my_zipped' comes from .*: unpack it into a folder"):
        submitted(str(tmp_path / "my_topology.py"))


# Impossible names


@pytest.mark.parametrize("name", ["nimbus", "local_cluster", "queue", "zmq"])
def test_a_module_that_would_hide_ours_or_pythons_is_refused_with_advice(tmp_path: Path, name: str) -> None:
    write(tmp_path / "project", {"my_topology.py": TOPOLOGY})
    write(tmp_path / "more", {f"{name}.py": ""})
    with pytest.raises(CannotShip) as caught:
        submitted(str(tmp_path / "project/my_topology.py"), include=(str(tmp_path / "more" / f"{name}.py"),))
    assert f"more/{name}.py: a module named '{name}' cannot be shipped, because " in str(caught.value)
    assert f"rename it, for example to my_{name}" in str(caught.value)


def test_a_data_folder_may_have_any_name(tmp_path: Path) -> None:
    write(tmp_path, {"my_topology.py": TOPOLOGY, "queue/data.txt": ""})
    _, package = submitted(str(tmp_path / "my_topology.py"), resources=(str(tmp_path / "queue"),))
    assert "queue/data.txt" in package.code


# --include


def test_included_files_are_put_where_the_same_import_finds_them(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "project/my_topology.py": "import my_far\n" + TOPOLOGY,
            "project/plugins/one.py": "import my_needed_by_a_plugin\n",
            "project/my_needed_by_a_plugin.py": "",
            "shared/my_far.py": "",
            "shared/my_package/__init__.py": "",
            "shared/my_package/part/__init__.py": "",
        },
    )
    project, shared = tmp_path / "project", tmp_path / "shared"
    _, package = submitted(
        str(project / "my_topology.py"),
        include=(str(project / "plugins"), str(shared / "my_far.py"), str(shared / "my_package/part")),
    )
    assert sorted(package.code) == [
        "my_far.py", "my_needed_by_a_plugin.py", "my_package/part/__init__.py", "my_topology.py", "plugins/one.py",
    ]  # fmt: skip


def test_including_the_files_own_folder_includes_all_of_it(tmp_path: Path) -> None:
    write(tmp_path / "project", {"my_topology.py": TOPOLOGY, "never_imported.py": "", "data/x.txt": ""})
    _, package = submitted(str(tmp_path / "project/my_topology.py"), include=(str(tmp_path / "project"),))
    assert sorted(package.code) == ["data/x.txt", "my_topology.py", "never_imported.py"]


def test_a_missing_or_invalid_include_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"my_topology.py": TOPOLOGY, "data.csv": "", "empty/.hidden": ""})
    for name, reason in (
        ("nothing.py", "no such file"),
        ("data.csv", "--resource"),
        ("empty", "contains nothing to ship"),
    ):
        with pytest.raises(CannotShip, match=reason):
            submitted(str(tmp_path / "my_topology.py"), include=(str(tmp_path / name),))


def test_two_files_for_one_place_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, {"one/my_module.py": "1", "two/my_module.py": "2", "project/my_topology.py": TOPOLOGY})
    with pytest.raises(CannotShip) as caught:
        submitted(
            str(tmp_path / "project/my_topology.py"),
            include=(str(tmp_path / "one/my_module.py"), str(tmp_path / "two/my_module.py")),
        )
    assert f"{tmp_path}/one/my_module.py and {tmp_path}/two/my_module.py would both be shipped as" in str(
        caught.value
    )


# --resource


def test_a_resource_keeps_its_place_or_is_put_beside_the_file_or_at_its_given_place(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "project/my_topology.py": TOPOLOGY,
            "project/data/a.txt": "",
            "far/b.txt": "",
            "far/c=d.txt": "",
            "far/more/e.txt": "",
        },
    )
    far = str(tmp_path / "far")
    _, package = submitted(
        str(tmp_path / "project/my_topology.py"),
        resources=(
            str(tmp_path / "project/data/a.txt"), f"{far}/b.txt", f"{far}/c=d.txt", f"{far}/b.txt=named/f.txt", f"{far}/more=g",
        ),
    )  # fmt: skip
    assert sorted(set(package.code) - {"my_topology.py"}) == [
        "b.txt",
        "c=d.txt",
        "data/a.txt",
        "g/e.txt",
        "named/f.txt",
    ]


def test_a_resource_of_a_module_in_a_package_is_put_beside_that_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"my_app/__init__.py": "", "my_app/one.py": TOPOLOGY, "far/b.txt": ""})
    monkeypatch.chdir(tmp_path)
    _, package = submitted("my_app.one", resources=("far/b.txt",))
    assert "my_app/b.txt" in package.code


def test_a_resource_that_cannot_travel_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"my_topology.py": TOPOLOGY, "empty/.hidden": "", "x.txt": ""})
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("nothing", "no such"), ("empty", "contains no file"), ("pipe", "neither a file")):
        with pytest.raises(CannotShip, match=reason):
            submitted(str(tmp_path / "my_topology.py"), resources=(str(tmp_path / name),))
    for name, problem in (("../up.txt", r"holds '\.\.'"), ("/etc/x", "absolute"), ("a//b", "an empty part")):
        with pytest.raises(
            CannotShip, match=rf"--resource .*x.txt={name}: NAME must be a place .* name .*{problem}"
        ):
            Resource.parse(f"{tmp_path}/x.txt={name}")
    with pytest.raises(
        CannotShip, match=r"x.txt=: .* there is no name after the '=': write PATH=NAME, or PATH"
    ):
        Resource.parse(f"{tmp_path}/x.txt=")
    (tmp_path / "x.txt=").touch()
    assert Resource.parse(f"{tmp_path}/x.txt=") == Resource(tmp_path / "x.txt=")


def test_a_resource_may_be_spread_beside_the_file_or_put_into_a_folder(tmp_path: Path) -> None:
    assert Resource.parse(f"{tmp_path}=.") == Resource(tmp_path, ".")
    assert Resource.parse(f"{tmp_path}=data/") == Resource(tmp_path, "data")
