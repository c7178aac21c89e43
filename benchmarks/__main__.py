"""`python -m benchmarks NAME [options]` runs a benchmark; `--list` shows them all, `NAME --help` the options of one.

A benchmark is a module of this folder with a function `main`, which reads `sys.argv`. It is imported by name, so that the
components that it pickles are found in worker processes too. Must not know what a benchmark measures.
"""

from __future__ import annotations

import ast
import difflib
import os
import sys
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def benchmarks() -> dict[str, str]:
    """Return the first line of each benchmark's docstring by its name, read without importing anything."""
    listed = {}
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        if "main" in functions and path.stem not in ("__main__", "bytewax_count", "flow"):
            listed[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return listed


def main() -> None:
    """Run the benchmark that the command line names; exit with 2 for an unknown name."""
    listed = benchmarks()
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--list", "--help", "-h"):
        print(__doc__.partition("\n")[0] if __doc__ else "")
        width = max(map(len, listed))
        print("\n" + "\n".join(f"  {name:{width}}  {text}" for name, text in listed.items()))
        return
    if name not in listed:
        close = difflib.get_close_matches(name, listed, n=1)
        hint = f"did you mean {close[0]}?" if close else "`python -m benchmarks --list` shows them"
        sys.exit(f"there is no benchmark {name!r}: {hint}")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(FOLDER.parent), os.environ.get("PYTHONPATH")])
    )
    sys.argv[:2] = [f"python -m benchmarks {name}"]
    sys.exit(import_module(f"benchmarks.{name}").main())


if __name__ == "__main__":
    main()
