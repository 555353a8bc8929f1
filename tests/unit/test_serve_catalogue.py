"""Which pipelines are served, whatever becomes of their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.serve.catalogue import Catalogue


def text(name: str) -> str:
    return (
        f"name: {name}\nsource: {{url: 'postgresql://localhost:1/x'}}\n"
        "destination: {type: discard}\n"
    )


def shown(catalogue: Catalogue) -> dict[str, tuple[str, bool]]:
    """By name: the file, and whether it can be used."""
    return {file.name: (file.path.name, bool(file.views)) for file in catalogue.all()}


def test_a_file_that_an_edit_broke_keeps_its_pipelines_name(tmp_path: Path) -> None:
    file = tmp_path / "10-orders.yaml"
    file.write_text(text("orders"))
    catalogue = Catalogue([tmp_path])
    for broken in (text("orders") + "nonsense: 1\n", "name: orders\nsource: [", "source: [", ""):
        file.write_text(broken)
        catalogue.refresh()
        assert shown(catalogue) == {"orders": ("10-orders.yaml", False)}, broken
    # A server that starts meanwhile knows it by what the file says.
    file.write_text("\"name\": 'orders' # ours\nsource: [")
    assert shown(Catalogue([tmp_path])) == {"orders": ("10-orders.yaml", False)}


def test_a_broken_file_takes_no_name_of_another_pipeline(tmp_path: Path) -> None:
    (tmp_path / "z.yaml").write_text(text("orders"))
    (tmp_path / "orders.yaml").write_text("source: [")
    (tmp_path / "a.yaml").write_text("name: orders\nsource: [")
    (tmp_path / "third.yaml").write_text(text("orders_2"))
    assert shown(Catalogue([tmp_path])) == {
        "orders": ("z.yaml", True),
        "orders_2": ("third.yaml", True),
        "a": ("a.yaml", False),
        "orders_3": ("orders.yaml", False),
    }


def test_a_copy_of_a_file_does_not_take_its_pipeline_over(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(text("orders"))
    catalogue = Catalogue([tmp_path])
    (tmp_path / "a-copy.yaml").write_text(text("orders"))
    catalogue.refresh()
    assert shown(catalogue) == {
        "orders": ("orders.yaml", True),
        "a_copy": ("a-copy.yaml", False),
    }


def test_a_folder_that_cannot_be_listed_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "orders.yaml").write_text(text("orders"))
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00name: x")
    catalogue = Catalogue([tmp_path])
    before = shown(catalogue)
    assert before == {"orders": ("orders.yaml", True), "binary": ("binary.yaml", False)}
    monkeypatch.setattr(Path, "iterdir", refuse)
    catalogue.refresh()
    assert shown(catalogue) == before
