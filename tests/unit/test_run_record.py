"""Which runs of a pipeline are found, where machines and containers share a folder."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config import load_pipeline
from penstock.config.models import PipelineConfig
from penstock.model.errors import ConfigError
from penstock.operations.process_identity import ProcessIdentity
from penstock.operations.run_record import RunRecord, left_code, recorded_run, running
from tests.spark_cluster import why_not


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\nsource: {url: postgresql://u@h/d}\ndestination: {type: discard}\n"
        f"change_log: {{path: {tmp_path / 'log'}}}\n"
    )
    return file


@pytest.fixture
def config(file: Path) -> PipelineConfig:
    return load_pipeline(file)


def test_another_machine_s_run_of_the_same_number_takes_nothing_away(
    config: PipelineConfig, file: Path
) -> None:
    """In containers, most programs are process 1."""
    with recorded_run(config, file, "http://first"):
        with recorded_run(config, file, "http://second"):
            assert len(list((config.change_log.local_folder / "runs").iterdir())) == 2
        found = running(config)
        assert found is not None
        assert found.metrics == "http://first"
    assert running(config) is None


def test_a_machine_that_got_another_name_still_knows_its_runs(
    config: PipelineConfig, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded_run(config, file, None):
        monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
        assert running(config) is not None


def test_a_record_of_an_older_version_is_judged_by_the_name() -> None:
    own = ProcessIdentity.own()
    value = own.to_json()
    del value["space"]
    assert ProcessIdentity.from_json(value).lives
    assert not replace(ProcessIdentity.from_json(value), host="elsewhere").lives


def test_what_a_run_ended_with(config: PipelineConfig, file: Path) -> None:
    """In order or not: it says so itself. One whose record was taken away has said nothing."""

    def record() -> RunRecord:
        found = running(config)
        assert found is not None
        return found

    with recorded_run(config, file, None):
        in_order = record()
        assert left_code(in_order) is None
    assert left_code(in_order) == 0
    with suppress(ConfigError), recorded_run(config, file, None):
        wrong = record()
        raise ConfigError("no")
    assert left_code(wrong) == 2
    # The next run has cleared that of the first one away; the same for a log that was deleted.
    assert left_code(in_order) is None
    with recorded_run(config, file, None):
        deleted = record()
        shutil.rmtree(config.change_log.local_folder)
    assert left_code(deleted) is None


@pytest.mark.skipif(why_not() is not None, reason="no process can be isolated here")
def test_a_process_of_another_container_is_not_ours(tmp_path: Path) -> None:
    """Of the same machine, of the same name, and by chance of the same number and moment."""
    code = (
        "import json\n"
        "from penstock.operations.process_identity import ProcessIdentity\n"
        "print(json.dumps(ProcessIdentity.own().to_json()))"
    )
    command = ["unshare", "-p", "-f", "--mount-proc", sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    theirs, ours = ProcessIdentity.from_json(json.loads(done.stdout)), ProcessIdentity.own()
    assert theirs.boot == ours.boot
    assert not replace(theirs, pid=os.getpid(), start=ours.start, host=ours.host).is_here
