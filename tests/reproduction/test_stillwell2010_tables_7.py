"""Studies of discovery: a campaign file says them, and Tables 7.1 and 7.2 are made of their results."""

import tomllib
from pathlib import Path

import polars as pl
import pytest

from dfrs.experiments.kinds.discovery import DISCOVERY, DiscoveryConfiguration, DiscoveryScenario, prepare, run
from dfrs.experiments.spec import build_campaign
from dfrs.experiments.spec_text import campaign_toml
from dfrs.model.errors import InputError
from dfrs_reproduction.catalogue import EXHIBITS
from dfrs_reproduction.sizes import FULL, QUICK
from dfrs_reproduction.stillwell2010 import tables_7

NAMES = ("stillwell2010-table-7.1", "stillwell2010-table-7.2")


@pytest.mark.parametrize("name", NAMES)
def test_the_campaign_and_its_file_turn_into_each_other(name):
    campaign = EXHIBITS[name].campaign(QUICK)
    again = build_campaign(tomllib.loads(campaign_toml(campaign)), Path())
    assert [cell.key for cell in again.runs] == [cell.key for cell in campaign.runs]
    assert {cell.key for cell in campaign.runs} < {cell.key for cell in EXHIBITS[name].campaign(FULL).runs}


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"methods": ["DYNAMICS"], "scenes": [{"seeds": 1}]}, "did you mean DYNAMIC"),
        ({"methods": [{"method": "OBSERVE", "policy": "MCB"}], "scenes": [{"seeds": 1}]}, "wait for ever"),
        ({"methods": ["OBSERVE"], "scenes": [{"seeds": 1, "hogs": -1}]}, "hogs"),
        ({"methods": ["OBSERVE"]}, "scenes"),
    ],
)
def test_what_is_wrong_is_refused(said, match):
    with pytest.raises(InputError, match=match):
        build_campaign({"format": "dfrs-campaign/1", "name": "c", **said}, Path())


def test_settings_are_combined_and_a_run_repeats():
    document = {
        "format": "dfrs-campaign/1",
        "name": "c",
        "settings": {"noise": [0.0, 0.01]},
        "methods": ["OBSERVE"],
        "scenes": [{"seeds": 3, "seconds": 300}],
    }
    campaign = build_campaign(document, Path())
    assert [cell.configuration.label for cell in campaign.runs] == ["OBSERVE noise=0", "OBSERVE noise=0.01"]
    cell = campaign.runs[1]
    rows = [run(prepare.__wrapped__(cell.scenario), cell.configuration, cell.seed, None) for _ in range(2)]
    assert rows[0] == rows[1]


def test_the_hogs_start_on_different_nodes_and_need_all():
    scene = DiscoveryScenario(seed=1, hogs=2, seconds=60).scene()
    assert scene.node.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 1]
    assert (scene.need[:, 12:] == 1.0).all()


def test_a_page_has_the_published_runs_and_what_holds():
    rows = []
    for seed in range(2):
        case = DiscoveryScenario(seed=seed, hogs=2, seconds=1200)
        for entry in tables_7.ENTRIES:
            assert isinstance(entry, DiscoveryConfiguration)
            names = {"algorithm": entry.label, "source": "unbalanced"}
            rows.append(dict.fromkeys(DISCOVERY.columns) | names | case.columns() | run(case.scene(), entry, 0, None))
    frame = pl.DataFrame(rows, schema={"algorithm": pl.String, "source": pl.String, **DISCOVERY.columns})
    report = EXHIBITS["stillwell2010-table-7.2"].report(QUICK, lambda _: frame)
    assert report.compared == 6
    cells = {(cell.row, cell.metric): cell for grid in report.content.grids for cell in grid.cells}
    assert cells["Xen", "average minimum yield"].published == pytest.approx(0.2375)
    assert cells["DYNAMIC", "minimum average yield, run 2"].measured == 0.348
    assert len(report.content.claims) == 9
