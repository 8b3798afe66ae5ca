"""What other packages bring: published tables, measurements of programs; and kinds of experiments, one file each."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from dfrs.experiments.kinds import experiments
from dfrs.experiments.kinds.farm import FARM
from dfrs.experiments.planned_runs import COMMON_COLUMNS, code_digest
from dfrs.experiments.results import NAMES
from dfrs.experiments.spec import build_campaign
from dfrs.experiments.spec_text import campaign_toml
from dfrs.model.errors import InputError

STREAMS = {"name": "c", "streams": [{"experiment": 1, "seeds": 1}], "policies": ["ARRIVE-F"]}
FARMS = {"name": "c", "farms": [{"seeds": 1}], "policies": ["ARRIVE-F"]}
OURS = EntryPoint("mine", "dfrs_reproduction.atif2011.programs:PROGRAMS", "dfrs.programs")


def test_without_published_tables_one_line_says_what_to_install(dfrs, monkeypatch):
    monkeypatch.setattr("dfrs.experiments.exhibits.entry_points", lambda group: ())
    status, out, err = dfrs("reproduce", "--list")
    assert (status, out) == (2, "")
    assert "pip install -e reproduction" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [("farm", "simulate", "-e", 1), ("farm", "predict", "-p", "p.json"), ("campaign", "run", "c.toml")]
)
def test_without_measurements_one_line_says_what_to_install(dfrs, monkeypatch, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    campaign = build_campaign({"format": "dfrs-campaign/1", **STREAMS}, Path())
    (tmp_path / "c.toml").write_text(campaign_toml(campaign))
    monkeypatch.setattr("dfrs.workloads.programs.entry_points", lambda group: ())
    status, out, err = dfrs(*arguments)
    assert (status, out) == (2, "")
    assert "pip install -e reproduction" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/farm.md"])
def test_pages_whose_commands_need_measurements_say_what_to_install(page):
    assert "pip install -e reproduction" in (Path(__file__).parents[2] / page).read_text()


@pytest.mark.parametrize("said", [STREAMS, FARMS])
def test_a_campaign_names_its_measurements(monkeypatch, said):
    usual = build_campaign({"format": "dfrs-campaign/1", **said}, Path()).runs[0]
    field = next(name for name in ("streams", "farms") if name in said)
    named = said | {field: [said[field][0] | {"programs": "mine"}]}
    with pytest.raises(InputError, match=rf'{field}\[0\].programs = "mine": .*there are arrive-f'):
        build_campaign({"format": "dfrs-campaign/1", **named}, Path())
    monkeypatch.setattr("dfrs.workloads.programs.entry_points", lambda group: (OURS,))
    other = build_campaign({"format": "dfrs-campaign/1", **named}, Path())
    assert "mine" in other.runs[0].name
    assert other.runs[0].key != usual.key
    assert 'programs = "mine"' in campaign_toml(other)


def test_measurements_count_as_the_code_of_what_is_run_with_them(monkeypatch):
    before = code_digest(FARM.code)
    monkeypatch.setattr("dfrs.experiments.planned_runs.entry_points", lambda group: (OURS,))
    code_digest.cache_clear()
    assert code_digest(FARM.code) != before
    code_digest.cache_clear()


def test_every_kind_of_experiment_says_all_that_is_asked_of_it():
    kinds = experiments().values()
    assert {kind.kind.name for kind in kinds} >= {"online", "offline", "needs", "farm", "hetero"}
    assert len({kind.sources for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert {kind.sources, kind.configurations} <= set(kind.study.model_fields)
        assert {*kind.metrics, *kind.x_columns, kind.cluster_by} <= set(kind.kind.schema)
        assert not set(kind.kind.schema) & {*COMMON_COLUMNS, *NAMES}
