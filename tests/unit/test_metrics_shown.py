"""What others get to see of the metrics: over HTTP, as reports, and by statsd."""

from __future__ import annotations

import json
import socket
import time

import pytest

from penstock.config.metrics_config import ListenAddress, MetricsConfig, ReportConfig, StatsdConfig
from penstock.metrics import catalogue as c
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.registry import Registry
from penstock.metrics.report import Reporter
from penstock.metrics.server import MetricsServer
from penstock.metrics.service import shown_metrics
from penstock.metrics.statsd import Statsd, datagrams
from penstock.metrics.written import Written
from penstock.model.errors import ConfigError, DestinationUnavailable
from penstock.model.lsn import Frontier
from tests.fix_pipeline import wait_until
from tests.http_get import http_get
from tests.pipelines import logged
from tests.unit.test_metrics import Clock, job

LOOPBACK = ListenAddress("127.0.0.1", 0)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("shop")


# -- the server ------------------------------------------------------------------------------------


def test_three_paths_are_served_on_loopback_and_no_other(
    metrics: Metrics, capfd: pytest.CaptureFixture[str]
) -> None:
    metrics.committed(job(), Frontier(1, 2), time.monotonic())
    with MetricsServer(metrics, LOOPBACK) as server:
        assert server.url.startswith("http://127.0.0.1:")
        scraped = http_get(f"{server.url}/metrics")
        assert (scraped.status, scraped.kind[:10]) == (200, "text/plain")
        line = (
            'penstock_delivered_changes_total{op="insert",pipeline="shop",table="public.items"} 3.0'
        )
        assert line in scraped.text.splitlines()
        health = http_get(f"{server.url}/health")
        assert (health.status, json.loads(health.text)["status"]) == (200, "healthy")
        ready = http_get(f"{server.url}/ready")
        assert (ready.status, ready.kind) == (503, "application/json")
        assert json.loads(ready.text)["reasons"]
        metrics.health.failed("it broke")
        assert http_get(f"{server.url}/health").status == 503
        for path in ("/", "/metrics/", "/..", "/health/x"):
            assert http_get(f"{server.url}{path}").status == 404
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ConnectionRefusedError):
        http_get(f"{server.url}/health")


def test_a_port_that_is_taken_is_told_of_unless_it_is_the_default(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        chosen = MetricsConfig.model_validate({"listen": address})
        with (
            pytest.raises(ConfigError, match=f"metrics.listen: {address}") as error,
            shown_metrics(metrics, chosen, said.append),
        ):
            pass
        assert "listen: false" in error.value.remedy
        monkeypatch.setattr(MetricsConfig, "is_default_address", True)
        with logged(said.append), shown_metrics(metrics, chosen, said.append):
            assert http_get(said[0].removeprefix("metrics at ")).status == 200
            assert address not in said[0]


# -- reports ---------------------------------------------------------------------------------------


def test_a_report_is_of_the_time_since_the_last_one(metrics: Metrics) -> None:
    clock, lines = Clock(), list[str]()
    text = Reporter(metrics.registry, "text", lines.append, clock)
    metrics.tables({"init": 0, "ready": 2, "errored": 1})
    metrics.committed(job(6_000), Frontier(1, 2), time.monotonic())
    clock.now = 60
    text()
    assert lines.pop() == (
        "pipeline shop: last 60 s: 6,000 changes delivered in 1 batches (100/s); "
        "lag 0 bytes, 0.0 s; tables: 2 ready, 1 errored"
    )
    metrics.source_is_at(2 + 2048)
    metrics.failed("stream", DestinationUnavailable("away"))
    metrics.retried("stream")
    metrics.copied([("public.items", 1_234, 9)], Written())
    clock.now = 70
    text()
    assert lines[0].startswith(
        "pipeline shop: last 10 s: 0 changes delivered in 0 batches (0/s); 1,234 rows copied; "
        "1 failures; 1 retries; lag 2.0 KiB, "
    )


def test_a_report_in_json_is_one_line_with_totals_and_what_came_since(metrics: Metrics) -> None:
    clock, lines = Clock(), list[str]()
    reports = Reporter(metrics.registry, "json", lines.append, clock)
    metrics.committed(job(5), Frontier(1, 2), time.monotonic())
    clock.now = 10
    reports()
    metrics.committed(job(2), Frontier(3, 4), time.monotonic())
    reports()
    first, second = map(json.loads, lines)
    assert first["seconds"] == 10
    assert first["since_last"]["delivered"] == first["totals"]["delivered"] == 5
    assert (second["since_last"]["delivered"], second["totals"]["delivered"]) == (2, 7)
    assert second["delivered_by_table"] == {"public.items": 2}
    assert second["lag_bytes"] == 0


# -- statsd ----------------------------------------------------------------------------------------


def test_statsd_gets_what_came_since_the_last_time(metrics: Metrics) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(30)
        statsd = Statsd(metrics.registry, ListenAddress(*udp.getsockname()), "cdc.shop")

        def received() -> set[str]:
            statsd.send()
            lines: set[str] = set()
            # Gauges come last of what is sent, and this one is always there.
            while not any(".unconfirmed_bytes:" in line for line in lines):
                lines.update(udp.recv(65536).decode().splitlines())
            return lines

        tags = "|c|#pipeline:shop,table:public.items,op:insert"
        metrics.committed(job(3), Frontier(1, 2), time.monotonic())
        first = received()
        assert f"cdc.shop.delivered_changes:3{tags}" in first
        assert "cdc.shop.batch_changes_sum:3|c|#pipeline:shop" in first
        assert "cdc.shop.lag_bytes:0|g|#pipeline:shop" in first
        assert not any("delivered_changes" in line for line in received())
        metrics.committed(job(4), Frontier(3, 4), time.monotonic())
        assert f"cdc.shop.delivered_changes:4{tags}" in received()


def test_a_statsd_that_is_not_there_is_no_trouble(metrics: Metrics) -> None:
    Statsd(metrics.registry, ListenAddress("no-such-host.invalid", 8125), "p").send()
    Statsd(metrics.registry, ListenAddress("127.0.0.1", 9), "p").send()


def test_names_that_would_break_a_line_do_not() -> None:
    registry = Registry("shop")
    registry.add(c.COPIED_ROWS, table='public."a|b,c:d#e\nf"')
    lines = list(Statsd(registry, LOOPBACK, "p").lines())
    assert 'p.copied_rows:1|c|#pipeline:shop,table:public."a_b_c_d_e_f"' in lines


def test_datagrams_hold_whole_lines_and_fit_a_frame() -> None:
    lines = [f"{'x' * (number % 300)}{number}" for number in range(1000)]
    sent = list(datagrams(lines))
    assert all(len(datagram) <= 1400 for datagram in sent)
    assert b"\n".join(sent).decode().split("\n") == lines


# -- all together ----------------------------------------------------------------------------------


def test_everything_that_is_asked_for_is_shown_and_ends_with_a_report(metrics: Metrics) -> None:
    said, written = list[str](), list[str]()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(30)
        config = MetricsConfig(
            listen=LOOPBACK,
            report=ReportConfig(every=3600, format="json"),
            statsd=StatsdConfig(address=ListenAddress(*udp.getsockname()), every=3600),
        )
        with logged(said.append), shown_metrics(metrics, config, written.append):
            metrics.committed(job(), Frontier(1, 2), time.monotonic())
            assert not written
        assert json.loads(written[0])["totals"]["delivered"] == 3
        assert udp.recv(65536).startswith(b"penstock.")
    assert len(said) == 1


def test_nothing_is_shown_that_is_turned_off(metrics: Metrics) -> None:
    said: list[str] = []
    off = MetricsConfig.model_validate({"listen": False, "report": False})
    with logged(said.append), shown_metrics(metrics, off, said.append):
        pass
    assert said == []


def test_reports_come_again_and_again(metrics: Metrics) -> None:
    written: list[str] = []
    config = MetricsConfig(listen=None, report=ReportConfig(every=0.01))
    with shown_metrics(metrics, config, written.append):
        wait_until(lambda: len(written) > 2, "three reports were written")


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("127.0.0.1:0", ListenAddress("127.0.0.1", 0)),
        (9000, ListenAddress("127.0.0.1", 9000)),
        ("metrics.local:80", ListenAddress("metrics.local", 80)),
        ("[::1]:9000", ListenAddress("::1", 9000)),
        (False, None),
    ],
)
def test_an_address_is_read_as_people_write_it(
    value: object, address: ListenAddress | None
) -> None:
    assert MetricsConfig.model_validate({"listen": value}).listen == address


@pytest.mark.parametrize("value", [True, "here", "host:", "::1:9000", "host:70000", "a b:1", -1])
def test_what_is_no_address_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="an address such as"):
        MetricsConfig.model_validate({"listen": value})


def test_the_file_says_what_is_shown() -> None:
    assert MetricsConfig().report is None
    assert MetricsConfig.model_validate({"report": True}).report == ReportConfig()
    with pytest.raises(ValueError, match="prefix"):
        StatsdConfig.model_validate({"address": 8125, "prefix": "a:b"})
    assert MetricsConfig().is_default_address
    assert not MetricsConfig.model_validate({"listen": 9000}).is_default_address
