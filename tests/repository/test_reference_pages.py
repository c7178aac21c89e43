"""The generated pages of docs/ are up to date, and links between documents have targets."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PLACE = re.compile(r"(?<![\w/.])[a-z][\w./]*(?:\.py|/)")


def reference_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_pages", ROOT / "scripts" / "reference_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", [path for path in reference_pages().PAGES if path.startswith("docs/")])
def test_a_generated_page_is_up_to_date(path: str) -> None:
    written = reference_pages().PAGES[path]()
    assert (ROOT / path).read_text(encoding="utf-8") == written, "run: python scripts/reference_pages.py"


def test_every_link_between_documents_has_a_target() -> None:
    broken = []
    for document in DOCUMENTS:
        for target in LINK.findall(document.read_text(encoding="utf-8")):
            path, _, heading = target.partition("#")
            if path.startswith(("http://", "https://")):
                continue
            aim = (document.parent / path) if path else document
            headings = anchors(aim) if heading and aim.is_file() else []
            if not aim.exists() or (heading and heading not in headings):
                broken.append(f"{document.name}: {target}")
    assert not broken


def anchors(document: Path) -> list[str]:
    """The anchor of a heading: lower case, words joined by dashes."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles]


def test_every_box_of_the_architecture_exists() -> None:
    # A path, or the end of one: "router.py" beside "worker/routing/outbox.py", "loop/" in the line of worker/.
    folders = [path for path in ROOT.iterdir() if (path / "__init__.py").exists() or path.name == "tests"]
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    known = [f"/{path.relative_to(ROOT)}" for path in paths]
    text = LINK.sub("", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    missing = [
        place
        for place in PLACE.findall(text)
        if not any(path.endswith(f"/{place.rstrip('/')}") for path in known)
    ]
    assert not missing
