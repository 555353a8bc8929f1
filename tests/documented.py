"""What the docs show, for tests that run it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

_DOCS = Path(__file__).parents[1] / "docs"
_DESTINATIONS = _DOCS / "destinations"


def destination_example(name: str) -> dict[str, Any]:
    """The minimal part of a pipeline file that a destination's page begins with."""
    page = (_DESTINATIONS / f"{name}.md").read_text()
    found: dict[str, Any] = yaml.safe_load(page.split("```yaml")[1].split("```")[0])
    return dict(found["destination"])


def source_example(name: str) -> dict[str, Any]:
    """The same of a source's page."""
    page = (_DOCS / "sources" / f"{name}.md").read_text()
    found: dict[str, Any] = yaml.safe_load(page.split("```yaml")[1].split("```")[0])
    return dict(found["source"])


def python_examples(page: Path) -> list[str]:
    """The pieces of Python that a page shows, in their order."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
