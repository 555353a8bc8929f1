"""What executors are given, and what starts of Spark are spared."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from penstock.destination.families.queue.finders import IDENTITY_GROUP, VERSION_GROUP
from penstock.model.errors import ConfigError
from penstock.spark import class_archive, environment
from penstock.transform.transformers.registry import GROUP as TRANSFORMERS


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write") as caught:
        environment.pack(tmp_path / "missing" / "env.tar.gz")
    assert "--output" in caught.value.remedy


def test_the_driver_finds_its_own_python_where_executors_find_theirs(tmp_path: Path) -> None:
    folder = environment.driver_folder(tmp_path)
    code = "import sys, penstock; print(sys.prefix)"
    done = subprocess.run(
        [environment.PYTHON, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == sys.prefix


def test_an_archive_of_classes_is_taken_only_if_nobody_else_could_have_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = class_archive._archive()
    assert path is not None
    assert path.is_relative_to(tmp_path)
    assert class_archive.archive_options() == ""
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"")
    path.chmod(0o600)
    assert str(path) in class_archive.archive_options()
    path.chmod(0o666)
    assert class_archive.archive_options() == ""
    path.chmod(0o600)
    path.parent.chmod(0o777)
    assert class_archive.archive_options() == ""


@pytest.mark.parametrize("group", [TRANSFORMERS, IDENTITY_GROUP, VERSION_GROUP])
@pytest.mark.parametrize("editable", [False, True])
def test_what_others_bring_is_packed(
    group: str, editable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the module is called otherwise than its package, in one file or in a folder."""
    module = f"own_{group.rpartition('.')[2]}_{editable}".lower()
    place = tmp_path / f"{module}.py"
    if editable:
        place = tmp_path / module / "__init__.py"
        place.parent.mkdir()
    place.write_text("class Own: ...\n")
    info = tmp_path / "some_shop_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-shop-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nown = {module}:Own\n")
    if editable:
        told = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
        (info / "direct_url.json").write_text(json.dumps(told))
    else:
        (info / "RECORD").write_text(f"{place.name},,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    # Penstock's own files are many, and not what this is about.
    monkeypatch.setattr(environment, "_NOT_NEEDED", {"penstock"})
    environment.pack(tmp_path / "env.tar.gz")
    with tarfile.open(tmp_path / "env.tar.gz") as packed:
        names = [name.partition("site-packages/")[2] for name in packed.getnames()]
    assert str(place.relative_to(tmp_path)) in names
