"""Compiles the core where a C compiler is there; everything else of the package stands in setup.cfg.

All modules of `topology_api.core_choice.HOT` are compiled, or none: without a compiler the same files run as plain Python.
SQUALL_BUILD=plain leaves it out, SQUALL_BUILD=compiled fails if it cannot be done, SQUALL_BUILD_FLAGS gives the compiler more.
"""

from __future__ import annotations

import importlib.util
import os
import sys
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
}


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


def extensions() -> list[Extension]:
    """One for each hot module."""
    flags = ["-g0", *os.environ.get("SQUALL_BUILD_FLAGS", "").split()]
    return [
        Extension(module, [os.path.relpath(CORE.source_path(module), HERE)], extra_compile_args=flags)
        for module in CORE.HOT
    ]


class BuildCore(build_ext):
    """Builds all extensions and their stamp, or none and says why."""

    def run(self) -> None:
        wanted = os.environ.get("SQUALL_BUILD", "")
        if wanted == "plain":
            self.extensions = []
            return
        self.forget_stamp()
        # Of what lies here now: a source that is edited while the compiler runs is not what it has compiled.
        fingerprint = CORE.fingerprint(HERE)
        try:
            from Cython.Build import cythonize

            made = cythonize(self.extensions, compiler_directives=DIRECTIVES, build_dir=self.build_temp, quiet=True)
            for extension, with_c in zip(self.extensions, made):
                extension.sources = with_c.sources
            super().run()
        except (Exception, SystemExit) as error:
            if wanted == "compiled":
                raise
            self.extensions = []
            lines = str(error).strip().splitlines() or [type(error).__name__]
            print(
                f"squall: the core is installed as plain Python, not compiled ({lines[-1]})",
                file=sys.stderr,
                flush=True,
            )
            return
        self.write_stamp(fingerprint)

    def stamp(self) -> str:
        """Where the stamp lies."""
        root = HERE if self.inplace else self.build_lib
        return str(CORE.stamp_path(root))

    def forget_stamp(self) -> None:
        """What is there is about to be replaced."""
        if os.path.exists(self.stamp()):
            os.remove(self.stamp())

    def write_stamp(self, fingerprint: str) -> None:
        """These extensions belong to the sources of this fingerprint."""
        os.makedirs(os.path.dirname(self.stamp()), exist_ok=True)
        with open(self.stamp(), "w", encoding="ascii") as file:
            file.write(fingerprint)

    def get_outputs(self) -> list[str]:
        return [*super().get_outputs(), self.stamp()] if self.extensions else []


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildCore})
