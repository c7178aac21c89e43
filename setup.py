"""Compiles the core where a C compiler is there; everything else of the package stands in setup.cfg.

All modules of `topology_api.core_choice.HOT` are compiled, or none: without a compiler the same files run as plain Python.
SQUALL_BUILD=plain leaves it out, SQUALL_BUILD=compiled fails if it cannot be done, SQUALL_BUILD_FLAGS gives the compiler more.
What is left in build/ from before is used where it was made from the same text, whatever the times of the files say.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import sysconfig
from types import ModuleType

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = os.path.dirname(os.path.abspath(__file__))

#: Bounds and None are checked: an error of ours must be an exception, not a crash. What is annotated is for people and mypy;
#: C types stand in the .pxd files.
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "boundscheck": True,
    "nonecheck": True,
    "initializedcheck": True,
    "binding": True,
    "auto_pickle": False,
    "show_performance_hints": False,
    "warn.unreachable": False,  # what is behind `if not cython.compiled`
}
#: What changes what a compiler makes of the same sources.
SETTINGS = ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED", "ARCHFLAGS", "SQUALL_BUILD_FLAGS")


def core_choice() -> ModuleType:
    """`topology_api.core_choice`, without what the package imports."""
    path = os.path.join(HERE, "topology_api", "core_choice.py")
    spec = importlib.util.spec_from_file_location("core_choice", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["core_choice"] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "core_choice"]
    return module


CORE = core_choice()
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))


def extensions() -> list[Extension]:
    """One for each hot module, and the shared one, whose source Cython writes."""
    flags = ["-g0", *os.environ.get("SQUALL_BUILD_FLAGS", "").split()]
    sources = {module: os.path.relpath(CORE.source_path(module), HERE) for module in CORE.HOT}
    sources[CORE.SHARED] = CORE.SHARED.replace(".", os.sep) + ".c"
    return [Extension(module, [source], extra_compile_args=flags) for module, source in sources.items()]


def remove(path: str) -> None:
    """Delete a file that may not be there."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def remove_extensions(root: str, endings: tuple[str, ...], keep: frozenset[str] = frozenset()) -> None:
    """Delete what was compiled below the packages that have, or had, hot modules."""
    for package in {module.partition(".")[0] for module in CORE.HOT}:
        for folder, _, names in os.walk(os.path.join(root, package)):
            for path in (os.path.join(folder, name) for name in names if name.endswith(endings)):
                if path not in keep:
                    remove(path)


class BuildCore(build_ext):
    """Builds all extensions and their stamp, or none and says why."""

    extensions: list[Extension]
    parallel: int | bool | None

    def run(self) -> None:
        wanted = os.environ.get("SQUALL_BUILD", "")
        if wanted not in ("", "plain", "compiled"):
            raise SystemExit(f"SQUALL_BUILD is {wanted!r}; it may be 'plain' or 'compiled'")
        if wanted == "plain":
            self.stay_plain()
            return
        # As they are now: one that is edited while this runs makes the extensions stale.
        sources = CORE.fingerprint(HERE)
        try:
            self.parallel = self.parallel or os.cpu_count()
            self.keep_what_is_the_same(sources)
            super().run()
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self.stay_plain()
            if wanted == "compiled" or isinstance(error, KeyboardInterrupt):
                raise
            lines = str(error).strip().splitlines() or [type(error).__name__]
            # Newer setuptools say it with all its options.
            why = re.sub(r"^Command '\['([^']+)'.*\]'", r"command '\1'", lines[-1])
            said = f"squall: the core is installed as plain Python, not compiled ({why})"
            print(said, file=sys.stderr, flush=True)
            return
        write(self.record(), self.recipe() + sources)
        write(self.stamp(), sources)

    def build_extensions(self) -> None:
        """Called with the compiler made ready."""
        from Cython.Build import cythonize

        # Before Cython is at work for half a minute.
        probe = os.path.join(self.build_temp, "probe.c")
        write(probe, "#include <Python.h>\n")
        self.compiler.compile(
            [os.path.relpath(probe)], output_dir=self.build_temp, include_dirs=self.include_dirs
        )
        # What is still there was made from the same text. Cython would compare times, also with its own files, which pip has
        # installed just now.
        every = self.extensions
        self.extensions = [one for one in every if not os.path.exists(self.get_ext_fullpath(one.name))]
        made = cythonize(
            self.extensions,
            compiler_directives=DIRECTIVES,
            build_dir=self.build_temp,
            force=bool(self.force),
            quiet=True,
            shared_utility_qualified_name=CORE.SHARED,
        )
        for extension, with_c in zip(self.extensions, made):
            extension.sources = with_c.sources
        super().build_extensions()
        self.extensions = every

    def keep_what_is_the_same(self, sources: str) -> None:
        """Delete what earlier builds left that was made from other text, by another compiler, or is not hot."""
        remove(self.stamp())
        try:
            with open(self.record(), encoding="utf-8") as file:
                before = set(file.read().splitlines())
        except FileNotFoundError:
            before = set()
        remove(self.record())
        changed = {line.partition(" ")[0] for line in before ^ {*(self.recipe() + sources).splitlines()}}
        built = {
            module: CORE.source_path(module, SUFFIX, self.build_lib) for module in (*CORE.HOT, CORE.SHARED)
        }
        if not before or not changed <= {f"{module}.py" for module in CORE.HOT}:
            self.force = True  # a .pxd file is of all modules that name it
            built.clear()
        for module in {name.removesuffix(".py") for name in changed} & {*built}:
            remove(CORE.source_path(module, ".c", self.build_temp))
            remove(built.pop(module))
        remove_extensions(self.build_lib, (".so", ".pyd", ".stamp"), keep=frozenset(built.values()))
        if self.inplace:
            remove_extensions(HERE, (SUFFIX,))

    def stay_plain(self) -> None:
        """Leave nothing that is compiled, and no sign of it in the name of the wheel."""
        remove(self.record())
        remove_extensions(self.build_lib, (".so", ".pyd", ".stamp"))
        if self.inplace:
            remove_extensions(HERE, (SUFFIX, f"{SUFFIX}.stamp"))
        self.extensions = []
        self.distribution.ext_modules = []
        wheel = self.distribution.get_command_obj("bdist_wheel", create=False)
        if wheel is not None:
            wheel.root_is_pure = True

    def recipe(self) -> str:
        """What besides the sources makes the extensions what they are, in lines."""
        from Cython import __version__ as cython

        settings = {name: os.environ.get(name, "") for name in SETTINGS}
        # Relative: what a copy of the checkout has in build/ is its own.
        where = os.path.relpath(self.build_lib, HERE)
        return f"recipe {(sys.version, cython, where, DIRECTIVES, CORE.SHARED, settings)!r}\n"

    def record(self) -> str:
        """Where it is written what the files in build/ were made from."""
        return os.path.join(self.build_temp, "made-from")

    def stamp(self) -> str:
        """Where the stamp lies."""
        root = HERE if self.inplace else self.build_lib
        return str(CORE.stamp_path(root))

    def get_outputs(self) -> list[str]:
        return [*super().get_outputs(), self.stamp()] if self.extensions else []


def write(path: str, text: str) -> None:
    """A file with this text."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildCore})
