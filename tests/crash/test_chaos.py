"""One short seed of chaos; `make chaos` runs many long ones. docs/testing.md says how."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.destination.registry import destination_names
from tests.crash import chaos
from tests.crash.chaos_seed import SeedReport, run_seed
from tests.crash.fault_schedule import plan_faults
from tests.crash.faults import FAULTS
from tests.crash.into_postgres import SERVER_SETTINGS
from tests.crash.trust_faults import TRUST_FAULTS
from tests.crash.trust_seed import run_trust_seed
from tests.fix_postgres import FreshServer

SEED = "2"
TRUST_SEED = "7"
KILLS = 5


@pytest.mark.slow
@pytest.mark.release
def test_a_short_seed(fresh_server: FreshServer, tmp_path: Path) -> None:
    servers = fresh_server(**SERVER_SETTINGS), fresh_server(**SERVER_SETTINGS)
    report = SeedReport(SEED)
    run_seed(report, KILLS, servers, tmp_path)
    assert len(report.faults) == KILLS
    assert report.rows > 0


@pytest.mark.slow
@pytest.mark.release
def test_a_short_seed_of_trust(fresh_server: FreshServer, tmp_path: Path) -> None:
    servers = fresh_server(**SERVER_SETTINGS), fresh_server(**SERVER_SETTINGS)
    report = SeedReport(TRUST_SEED)
    run_trust_seed(report, KILLS, servers, tmp_path)
    assert len(report.faults) == KILLS
    assert report.rows > 0


def test_a_seed_brings_the_same_faults_again() -> None:
    assert plan_faults(7, 10, FAULTS) == plan_faults(7, 10, FAULTS)
    assert plan_faults(7, 10, FAULTS) != plan_faults(8, 10, FAULTS)


@pytest.mark.parametrize("faults", [FAULTS, TRUST_FAULTS], ids=["faults", "trust"])
def test_a_few_seeds_bring_every_fault(faults: Mapping[str, object]) -> None:
    seeds = -(-2 * len(faults) // 10)
    kinds = {fault.kind for seed in range(1, 1 + seeds) for fault in plan_faults(seed, 10, faults)}
    assert kinds == set(faults)


class Seeds:
    """Stands for the seeds themselves: some fail, and one is interrupted."""

    def __init__(self) -> None:
        self.run: list[str] = []
        self.interrupt: str | None = None

    def __call__(self, report: SeedReport, kills: int, _folder: Path) -> str:
        if report.seed == self.interrupt:
            raise KeyboardInterrupt
        self.run.append(report.seed)
        report.faults = ["fault"] * kills
        return "why\n" if report.seed == "2" else ""


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Seeds:
    seeds = Seeds()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chaos, "_run", seeds)
    monkeypatch.setattr(chaos, "code_version", lambda: "abc")
    for name in (
        "SEED",
        "SEEDS",
        "FIRST",
        "KILLS",
        "COPY",
        "TABLES",
        "SCHEMA",
        "TRUST",
        "OBJECTS",
        "INTO",
    ):
        monkeypatch.delenv(name, raising=False)
    return seeds


def test_chaos_goes_on_where_it_stopped(
    seeds: Seeds, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEEDS", "3")
    seeds.interrupt = "3"
    with pytest.raises(KeyboardInterrupt):
        chaos.main()
    assert seeds.run == ["1", "2"]

    seeds.interrupt = None
    assert chaos.main() == 1
    assert seeds.run == ["1", "2", "3", "outage"]
    said = capsys.readouterr().out
    assert "4 runs, 40 faults" in said
    assert "3 equal, 1 failed" in said
    assert "failed: make chaos SEED=2\n" in said
    # What failed can be looked at; the rest is gone.
    assert [path.name for path in Path(".cache/chaos").glob("seed-*")] == ["seed-2"]
    assert Path(".cache/chaos/seed-2/failure.txt").read_text() == "why\n"


def test_chaos_counts_only_what_the_same_code_did(
    seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDS", "1")
    assert chaos.main() == 0
    assert chaos.main() == 0
    assert seeds.run == ["1", "outage"]
    monkeypatch.setattr(chaos, "code_version", lambda: "abd")
    assert chaos.main() == 0
    assert seeds.run == ["1", "outage"] * 2


def test_chaos_replays_one_seed_whatever_is_recorded(
    seeds: Seeds, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEED", "2")
    monkeypatch.setenv("KILLS", "3")
    assert chaos.main() == 1
    assert chaos.main() == 1
    assert seeds.run == ["2", "2"]
    assert "make chaos SEED=2 KILLS=3" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["COPY=1", "TABLES=1", "TRUST=1", "OBJECTS=1", "INTO=kafka"])
def test_chaos_keeps_its_kinds_of_seeds_apart(
    seeds: Seeds, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    monkeypatch.setenv("SEEDS", "2")
    assert chaos.main() == 1
    name, _, value = mode.partition("=")
    monkeypatch.setenv(name, value)
    for _ in range(2):
        assert chaos.main() == 1
    # Neither those of the other kind count, nor does an outage belong to these.
    assert seeds.run == ["1", "2", "outage", "1", "2"]
    assert f"failed: make chaos SEED=2 {mode}\n" in capsys.readouterr().out
    kind = value if name == "INTO" else name.lower()
    assert Path(f".cache/chaos/seed-{kind}-2/failure.txt").exists()


def test_chaos_finds_a_destination_by_the_name_of_its_seeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert {"kafka", "kinesis"} <= set(chaos.seeds_into()) <= set(destination_names())
    for name in chaos.seeds_into():
        assert chaos.find_seed(name).__module__ == f"tests.crash.{name}_seed"
    monkeypatch.setenv("INTO", "kafak")
    with pytest.raises(ValueError, match=r"INTO=kafak: there are seeds into .*kafka"):
        chaos.main()
