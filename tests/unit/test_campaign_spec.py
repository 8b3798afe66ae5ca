"""Campaign files: what they say is what is run, under names that do not change, and what is wrong is named."""

import json
import math
import shutil
import tomllib
from itertools import product
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.experiments.fields import spread
from dfrs.experiments.kinds import experiments, offline, online
from dfrs.experiments.planned_runs import PlannedRun
from dfrs.experiments.sources.instances import (
    DissertationSource,
    InstanceFile,
    RandomInstance,
    ServicesSource,
    VirtualClusterSource,
)
from dfrs.experiments.sources.traces import LublinSource, LublinTrace, TracePart
from dfrs.experiments.spec import LARGEST_FILE_BYTES, Campaign, ReportSettings, Study, build_campaign, read_campaign
from dfrs.experiments.spec_text import campaign_toml
from dfrs.model.errors import InputError
from dfrs.placement.registry import Options, expand
from dfrs.policies.names import TABLE_5_1, TABLE_5_2, all_published
from dfrs.workloads.files import instance_document
from dfrs.workloads.services import LARGE_SERVICES, SMALL_SERVICES, ServiceScenario, dissertation_instance
from dfrs_reproduction.sizes import clusters, dissertation

TRACE = "; MaxNodes: 8\n; MaxProcs: 8\n" + "".join(
    f"{k + 1} {k * 90_000} 0 {100 + k} {1 + k % 8} -1 -1 {1 + k % 8} 400 -1 1 1 1 1 1 1 -1 -1\n" for k in range(20)
)
"""A job every 25 hours, so that there are three weeks."""
LUBLIN = {"model": "lublin", "jobs": 60, "nodes": 8, "seeds": "1-3"}
SERVICES = {"model": "services", "nodes": 4, "services": 8, "slack": 0.5, "seeds": "0-1"}


def built(directory=Path(), **document):
    return build_campaign({"name": "c", **document}, directory)


def online_study(source=None, **more):
    return built(**({"policies": ["EASY"], "workloads": [LUBLIN | (source or {})]} | more)).studies[0]


def offline_study(source=None, **more):
    return built(**({"algorithms": ["GREEDY"], "instances": [SERVICES | (source or {})]} | more)).studies[0]


def cases_of(study):
    return list(dict.fromkeys(run.scenario for run in study.runs))


def labels_of(study):
    return [entry.label for entry in study.configurations]


def told(campaign):
    """All that a file must keep."""
    return [
        (study.name, study.sample, study.alone, source.name, run.key, run.name, run.configuration.label)
        for study in campaign.studies
        for source in study.sources
        for run in study.runs_of(source)
    ]


def refused(match, **document):
    with pytest.raises(InputError, match=match) as caught:
        built(**document)
    assert "\n" not in str(caught.value)


def test_a_file_without_studies_is_one_of_one_study():
    study = {"name": "main", "policies": ["EASY", "FCFS"], "workloads": [LUBLIN], "settings": {"penalty_s": [0, 300]}}
    inline = {key: value for key, value in study.items() if key != "name"}
    one, other = built(**inline), built(studies=[study])
    assert told(one) == told(other)
    assert len(one.runs) == 3 * 2 * 2
    assert built(**inline, keep_runs=True, description="d").keep_runs


def test_a_file_is_read_as_it_is_written(tmp_path):
    (tmp_path / "c.toml").write_text(
        '\ufeffname = "loads"\ndescription = "what for"\nkeep_runs = true\npolicies = ["EASY", "GreedyPM*"]\n'
        '[[workloads]]\nmodel = "lublin"\nseeds = 7\n[report]\nmeasures = ["stretch_max"]\nbaseline = "EASY"\n'
    )
    campaign = read_campaign(tmp_path / "c.toml")
    assert (campaign.name, campaign.description, campaign.keep_runs) == ("loads", "what for", True)
    assert campaign.report == ReportSettings(measures=("stretch_max",), baseline="EASY")
    assert cases_of(campaign.studies[0]) == [LublinTrace(seed=7)]
    assert campaign.studies[0].configurations == (
        online.OnlineConfiguration(label="EASY", policy="EASY"),
        online.OnlineConfiguration(label="GreedyPM*", policy="GreedyPM*"),
    )


@pytest.mark.parametrize(
    ("said", "numbers"),
    [
        ("1-3, 7", [1, 2, 3, 7]),
        (7, [7]),
        ("0", [0]),
        ([5, 1], [5, 1]),
        (" 4 - 5 ,2", [4, 5, 2]),
        (2**63 - 1, [2**63 - 1]),
        ("9-9", [9]),
        ("10-12,1-2", [10, 11, 12, 1, 2]),
    ],
)
def test_numbers_are_one_several_or_ranges(said, numbers):
    assert [scenario.seed for scenario in cases_of(online_study({"seeds": said}))] == numbers


@pytest.mark.parametrize(
    "said", ["5-1", "1-", "-1", "a", "", "1,,2", "1-99999999999", "1-2, 2", [], [1, 1], [-1], 1.5, 2**63]
)
def test_what_is_no_numbers_is_refused_with_its_field(said):
    refused(r"^workloads\[0\]\.seeds", policies=["EASY"], workloads=[LUBLIN | {"seeds": said}])


def test_every_seed_is_run_at_every_load_under_every_policy():
    study = online_study({"loads": [0.5, 0.9]}, policies=["EASY", "FCFS"])
    places = [(c.scenario.seed, c.scenario.load, c.configuration.policy) for c in study.runs]
    assert places == list(product((1, 2, 3), (0.5, 0.9), ("EASY", "FCFS")))
    assert [scenario.load for scenario in cases_of(online_study({"loads": 0.7}))] == [0.7] * 3
    assert [scenario.load for scenario in cases_of(online_study())] == [None] * 3


@pytest.mark.parametrize("loads", [0, -0.5, [0.5, 0.5], math.nan, math.inf, "high"])
def test_a_load_that_is_none_is_refused(loads):
    refused(r"^workloads\[0\]\.loads", policies=["EASY"], workloads=[LUBLIN | {"loads": loads}])


def test_the_first_cases_are_those_of_the_whole():
    whole = cases_of(online_study({"loads": [0.5, 0.9]}))
    for first in range(1, 7):
        assert cases_of(online_study({"loads": [0.5, 0.9], "first": first})) == whole[:first]
    refused("first = 7: there are 6", **on(workloads=[LUBLIN | {"seeds": "1-3", "loads": [0.5, 0.9], "first": 7}]))


def test_settings_of_several_values_are_run_in_every_combination_and_told_in_the_label():
    study = online_study(
        policies=["EASY", "FCFS"],
        settings={"penalty_s": [0, 300], "order": ["completions-first", "submissions-first"], "bandwidth_gb_s": 2},
    )
    assert len(study.runs) == 3 * 2 * 2 * 2
    assert labels_of(study)[:4] == [
        f"EASY penalty_s={seconds} order={order}"
        for seconds, order in product(("0", "300"), ("completions-first", "submissions-first"))
    ]
    assert {entry.bandwidth_gb_s for entry in study.configurations} == {2.0}
    assert [entry.penalty_s for entry in study.configurations] == [0, 0, 300, 300] * 2


def test_a_policy_keeps_its_own_settings_where_others_vary():
    study = online_study(
        policies=[
            "EASY",
            {"policy": "EASY", "penalty_s": 7, "label": "mine"},
            {"policy": "FCFS", "order": "submissions-first"},
        ],
        settings={"penalty_s": [0, 300]},
    )
    assert [(entry.label, entry.policy, entry.penalty_s, entry.order) for entry in study.configurations] == [
        ("EASY penalty_s=0", "EASY", 0.0, "completions-first"),
        ("EASY penalty_s=300", "EASY", 300.0, "completions-first"),
        ("mine", "EASY", 7.0, "completions-first"),
        ("FCFS penalty_s=0", "FCFS", 0.0, "submissions-first"),
        ("FCFS penalty_s=300", "FCFS", 300.0, "submissions-first"),
    ]


def test_settings_of_algorithms_reach_their_options():
    study = offline_study(
        algorithms=["VP_CPSUM", {"algorithm": "BEST", "rounds": 3, "label": "three rounds"}],
        settings={"window": [1, 2], "search": "midpoints", "second_phase": "average", "time_limit_s": 0.5},
    )
    assert [(e.label, e.options.window, e.options.rounds) for e in study.configurations] == [
        ("VP_CPSUM window=1", 1, None),
        ("VP_CPSUM window=2", 2, None),
        ("three rounds window=1", 1, 3),
        ("three rounds window=2", 2, 3),
    ]
    for entry in study.configurations:
        assert (entry.options.search, entry.second_phase, entry.options.time_limit_s) == ("midpoints", "average", 0.5)
    assert len(study.runs) == 2 * 4


def test_sets_of_policies_are_those_of_the_documents():
    assert labels_of(online_study(policies=["@table-5.2"])) == list(TABLE_5_2)
    assert labels_of(online_study(policies=["@table-5.1"])) == list(TABLE_5_1)
    appendix = labels_of(online_study(policies=["@appendix-b"]))
    assert appendix == ["FCFS", "EASY", *all_published()]
    assert (len(TABLE_5_2), len(set(appendix))) == (20, 118)
    refused(r'policies\[1\]\.policy = "@table-5.3".*@table-5.2', policies=["EASY", "@table-5.3"], workloads=[LUBLIN])


def test_patterns_of_algorithms_are_those_of_the_registry():
    packings = labels_of(offline_study(algorithms=["VP_*"]))
    assert packings == expand(["VP_*"])
    assert len(packings) > 10
    assert all(name.startswith("VP_") for name in packings)
    twice = offline_study(algorithms=["GREEDY", {"algorithm": "VP_[FB]F*", "search": "midpoints"}])
    assert all(e.options.search == ("ends" if e.algorithm == "GREEDY" else "midpoints") for e in twice.configurations)
    refused(r'algorithms\[0\].*"VP_Q\*"', algorithms=["VP_Q*"], instances=[SERVICES])


@pytest.fixture
def traced(tmp_path):
    (tmp_path / "t.swf").write_text(TRACE)
    return tmp_path


def trace_cases(directory, **source):
    document = {"name": "c", "policies": ["EASY"], "workloads": [{"model": "swf", "file": "t.swf"} | source]}
    return cases_of(build_campaign(document, directory).studies[0])


def test_a_trace_is_run_as_a_whole_in_weeks_or_in_part_at_every_load(traced):
    (whole,) = trace_cases(traced)
    assert (len(whole.workload()), whole.workload().nodes) == (20, 8)
    assert [len(scenario.workload()) for scenario in trace_cases(traced, jobs="0:7")] == [7]
    assert trace_cases(traced, jobs="5:7")[0].workload().run_s.tolist() == [105, 106]
    weeks = trace_cases(traced, weeks="1-3")
    assert [scenario.week for scenario in weeks] == [1, 2, 3]
    assert sum(len(scenario.workload()) for scenario in weeks) == 20
    assert all(0 <= scenario.workload().submit_s[0] < 7 * 86_400 for scenario in weeks)
    many = trace_cases(traced, weeks=[3, 1], loads=[0.5, 0.25], seeds="4-5", nodes=16)
    assert [(c.week, c.seed, c.load) for c in many] == list(product((3, 1), (4, 5), (0.5, 0.25)))
    assert many[0].workload().load == pytest.approx(0.5)
    assert len({scenario.name for scenario in [whole, *weeks, *many]}) == 12


def test_a_trace_is_found_beside_the_file_and_then_where_the_traces_are(traced, monkeypatch):
    elsewhere = traced / "traces"
    elsewhere.mkdir()
    shutil.copy(traced / "t.swf", elsewhere / "only-there.swf")
    (elsewhere / "t.swf").write_text(TRACE.replace(" 400 ", " 401 "))
    monkeypatch.setenv("DFRS_TRACES", str(elsewhere))
    (beside,) = trace_cases(traced)
    assert beside.path == traced / "t.swf"
    (there,) = trace_cases(traced, file="only-there.swf")
    assert there.path == elsewhere / "only-there.swf"
    assert beside.digest == there.digest
    with pytest.raises(InputError, match=r"nowhere\.swf.*DFRS_TRACES"):
        trace_cases(traced, file="nowhere.swf")


def test_a_trace_may_move_and_its_cells_stay_those_but_may_not_change(traced):
    other = traced / "other"
    other.mkdir()
    shutil.copy(traced / "t.swf", other)
    assert [scenario.name for scenario in trace_cases(traced)] == [scenario.name for scenario in trace_cases(other)]
    (read,) = trace_cases(traced)
    (other / "t.swf").write_text(TRACE.replace(" 400 ", " 401 "))
    assert trace_cases(other)[0].name != read.name
    (traced / "t.swf").write_text(TRACE.replace(" 400 ", " 402 "))
    with pytest.raises(InputError, match="has changed since"):
        read.workload()


def test_a_process_that_has_read_a_trace_reads_it_again_when_it_is_another(traced):
    assert trace_cases(traced)[0].workload().run_s.tolist()[0] == 100
    (traced / "t.swf").write_text(TRACE.replace(" 100 ", " 99 "))
    assert trace_cases(traced)[0].workload().run_s.tolist()[0] == 99


def test_instances_are_read_from_files(tmp_path):
    scenario = ServiceScenario(nodes=2, services=4, dims=2, slack=0.5, sigma=0.25, rho=0.0)
    for k in (1, 2):
        (tmp_path / f"{k}.json").write_text(json.dumps(instance_document(dissertation_instance(scenario, k))))
    document = {
        "name": "c",
        "algorithms": ["GREEDY"],
        "instances": [{"model": "files", "files": ["2.json", "1.json"]}],
    }
    runs = build_campaign(document, tmp_path).runs
    assert [run.scenario.path.name for run in runs] == ["2.json", "1.json"]
    assert instance_document(runs[0].scenario.instance()) == instance_document(dissertation_instance(scenario, 2))
    assert runs[0].name.startswith("2.json sha256=")
    assert len({run.key for run in runs}) == 2


GREEDY = online.OnlineConfiguration(
    label="a", policy="GreedyPM*/per/OPT=MIN/MVT=600", bandwidth_gb_s=0.5, node_memory_gb=4.0
)
EASY = online.OnlineConfiguration(label="b", policy="EASY", penalty_s=0.0, order="submissions-first")
BEST = offline.OfflineConfiguration(
    label="c", algorithm="BEST", options=Options(rounds=5, search="midpoints", pair_order="index")
)
PACKING = offline.OfflineConfiguration(label="d", algorithm="VP_CPSUM", second_phase="average")
WEEK = TracePart(
    path=Path("somewhere/HPC2N-2002-2.2-cln.swf.gz"), digest="0123abcd" * 8, nodes=120, annotate="hpc2n", week=7
)
PART = TracePart(path=Path("t.swf"), digest="f" * 64, first=0, end=100, load=0.7, seed=3)
THICK = ServiceScenario(nodes=64, services=100, dims=2, slack=0.1, sigma=0.25, rho=0.0)
CELLS = (
    PlannedRun(kind=online.ONLINE, scenario=LublinTrace(seed=1), configuration=GREEDY),
    PlannedRun(
        kind=online.ONLINE,
        scenario=LublinTrace(seed=3, load=0.7, jobs=60, nodes=8, estimates="user"),
        configuration=EASY,
    ),
    PlannedRun(kind=online.ONLINE, scenario=WEEK, configuration=GREEDY),
    PlannedRun(kind=online.ONLINE, scenario=PART, configuration=EASY, alone=True),
    PlannedRun(
        kind=offline.OFFLINE, scenario=RandomInstance(parameters=THICK, seed=12), configuration=BEST, alone=True
    ),
    PlannedRun(kind=offline.OFFLINE, scenario=clusters(1, large=False).scenarios()[0], configuration=PACKING),
    PlannedRun(
        kind=offline.OFFLINE, scenario=InstanceFile(path=Path("i.json"), digest="0" * 64), configuration=PACKING
    ),
)
GOLDEN = (
    (
        "lublin-1 jobs=1000 nodes=128 annotate=dfrs estimates=perfect | GreedyPM*/per/OPT=MIN/MVT=600 | "
        "penalty_s=300 bandwidth_gb_s=0.5 node_memory_gb=4 completions-first",
        "d1502c7044142161",
        143_109_568_673_002,
    ),
    (
        "lublin-3 jobs=60 nodes=8 load=0.7 annotate=dfrs estimates=user | EASY | penalty_s=0 "
        "node_memory_gb=8 submissions-first",
        "b72a23bd136eebc3",
        146_439_294_372_671,
    ),
    (
        "HPC2N-2002-2.2-cln week=7 nodes=120 annotate=hpc2n estimates=perfect seed=0 sha256=0123abcd0123 "
        "| GreedyPM*/per/OPT=MIN/MVT=600 | penalty_s=300 bandwidth_gb_s=0.5 node_memory_gb=4 "
        "completions-first",
        "33d583d56eaeb953",
        60_445_203_371_946,
    ),
    (
        "t jobs=0:100 load=0.7 annotate=dfrs estimates=perfect seed=3 sha256=ffffffffffff | EASY | "
        "penalty_s=0 node_memory_gb=8 submissions-first | alone",
        "96bcf1f6b753a28e",
        39_394_106_761_496,
    ),
    (
        "services-12 nodes=64 services=100 dims=2 slack=0.1 sigma=0.25 rho=0 mu=0.5 qos=0.5 | BEST | "
        "rounds=5 pair_order=index search=midpoints second_phase=none | alone",
        "0b8aef32001ce536",
        281_259_404_070_740,
    ),
    (
        "virtual-clusters-0 nodes=4 tasks=6 slack=0.1 memory_cov=0.25 cpu_cov=0.25 parallel=False | "
        "VP_CPSUM | second_phase=average",
        "af7a6fd7a87ff54f",
        147_356_180_477_702,
    ),
    ("i.json sha256=000000000000 | VP_CPSUM | second_phase=average", "036f3065ac1ed44a", 268_269_514_045_779),
)
"""Names, keys and seeds of these."""


@pytest.mark.parametrize(("run", "golden"), list(zip(CELLS, GOLDEN, strict=True)))
def test_names_keys_and_seeds_stay_what_they_are(run, golden):
    """Results are found by these: whoever changes one has everybody run everything again."""
    assert (run.name, run.key, run.seed) == golden


def test_loads_and_settings_that_differ_in_the_tenth_digit_have_other_names():
    loads = [0.7, 0.7000000001]
    names = [run.name for run in online_study({"loads": loads, "seeds": 1}).runs]
    assert len(set(names)) == 2
    assert all(f"load={load!r} " in name for load, name in zip(loads, names, strict=True))
    for setting in ("penalty_s", "bandwidth_gb_s", "node_memory_gb"):
        study = online_study({"seeds": 1}, settings={setting: [300.0, 300.0000001]})
        assert len({run.key for run in study.runs}) == len(set(labels_of(study))) == 2
    study = offline_study({"seeds": 1, "slack": [0.5, 0.5000000001]})
    assert len({run.key for run in study.runs}) == 2


def test_a_cell_in_two_studies_is_run_once():
    one = {"name": "a", "policies": ["EASY", "FCFS"], "workloads": [LUBLIN]}
    other = {"name": "b", "policies": ["EASY"], "workloads": [LUBLIN | {"seeds": "2-4"}]}
    campaign = built(studies=[one, other])
    assert [len(study.runs) for study in campaign.studies] == [6, 3]
    assert len(campaign.runs) == 7
    alone = built(studies=[one, other | {"alone": True}])
    assert len(alone.runs) == 9


def on(**more):
    return {"policies": ["EASY"], "workloads": [LUBLIN]} | more


def of(**more):
    return {"algorithms": ["BEST"], "instances": [SERVICES]} | more


@pytest.mark.parametrize(
    ("field", "document"),
    [
        ("name", on(name=3)),
        ("colour", on(colour="red")),
        ("format", on(format="dfrs-campaign/9")),
        ("policies", on(policies=[])),
        ("policies", on(policies="EASY")),
        ("policies", {"workloads": [LUBLIN]}),
        ("workloads", {"policies": ["EASY"]}),
        ("workloads", on(workloads=[])),
        (r"workloads\[0\]", on(workloads=[LUBLIN | {"model": "lubl"}])),
        (r"workloads\[0\]", on(workloads=[{"seeds": 1}])),
        (r"workloads\[0\]\.sedes", on(workloads=[LUBLIN | {"sedes": 1}])),
        (r"workloads\[0\]\.jobs", on(workloads=[LUBLIN | {"jobs": "60"}])),
        (r"workloads\[0\]\.nodes", on(workloads=[LUBLIN | {"nodes": 0}])),
        (r"workloads\[0\]\.jobs", on(workloads=[LUBLIN | {"jobs": 2**63}])),
        (r"settings\.command_limit", on(settings={"command_limit": 2**63})),
        (r"workloads\[0\]\.first", on(workloads=[LUBLIN | {"first": 0}])),
        (r"workloads\[0\]\.annotate", on(workloads=[LUBLIN | {"annotate": "smp:0:0"}])),
        (r"workloads\[1\]\.seeds", on(workloads=[LUBLIN, LUBLIN | {"name": "b", "seeds": "x"}])),
        (r"settings\.penalty_s\[1\]", on(settings={"penalty_s": [1, -1]})),
        (r"settings\.order", on(settings={"order": "any"})),
        (r"settings\.window", of(settings={"window": 0})),
        (r"settings\.penalty_s", of(settings={"penalty_s": 1})),
        (r"instances\[0\]\.set", of(instances=[{"model": "000", "set": "medium", "first": 1}])),
        ("either", on(algorithms=["BEST"])),
        ("either", on(instances=[SERVICES])),
        ("either", {}),
        ("twice", on(policies=["EASY", "EASY"])),
        ("twice", on(workloads=[LUBLIN, LUBLIN])),
        ("twice", {"studies": 2 * [on(name="a")]}),
        (r"studies\[1\]\.policies\[0\]", {"studies": [on(name="a"), on(name="b", policies=["EASYY"])]}),
        ("policies", {"policies": ["EASY"], "studies": [on(name="a")]}),
        ("stretch_max", on(report={"measures": ["stretch_maxx"]})),
        ("did you mean EASY", on(report={"baseline": "EASYY"})),
        ("did you mean load", on(report={"x": "laod"})),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(field, document):
    refused(field, **document)


@pytest.mark.parametrize(
    ("match", "document"),
    [
        (r"policies\[0\]\.penalty_s = -1", on(policies=[{"policy": "EASY", "penalty_s": -1}])),
        (r"policies\[0\].*EASYY.*did you mean EASY", on(policies=[{"policy": "EASYY"}])),
        (r"policies\[0\]\.penlty_s", on(policies=[{"policy": "EASY", "penlty_s": 1}])),
        (r"algorithms\[0\]\.rounds = 0", of(algorithms=[{"algorithm": "BEST", "rounds": 0}])),
    ],
)
def test_what_is_wrong_with_one_policy_is_told_with_its_field(match, document):
    refused(match, **document)


WHOLE = {
    "online": on(),
    "offline": of(),
    "needs": {"methods": ["EQUAL"], "scenes": [{"seeds": 1}]},
    "hetero": {"policies": ["EASY"], "farms": [{"seeds": 1}]},
}
"""A study of each kind that has settings."""


def settings_of(kind):
    return experiments()[kind].study.model_fields["settings"].annotation.model_fields


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in WHOLE for name in settings_of(kind)])
def test_a_setting_without_any_value_is_refused(kind, name):
    refused(rf"^settings\.{name}: must have at least one$", **WHOLE[kind], settings={name: []})


@pytest.mark.parametrize("name", ["nodes", "services", "dims", "slack", "sigma", "rho"])
def test_an_instance_parameter_without_any_value_is_refused(name):
    refused(rf"^instances\[0\]\.{name}: must have at least one$", **of(instances=[SERVICES | {name: []}]))


def test_one_thing_wrong_is_not_counted_twice():
    refused(r"^workloads\[0\]\.seeds(?!.*more\))", **on(workloads=[LUBLIN | {"seeds": "x"}]))


@pytest.mark.parametrize(
    ("field", "document"),
    [
        ("keep_runs", on(keep_runs="yes")),
        ("keep_runs", on(keep_runs=1)),
        ("alone", on(alone="no")),
        ("seeds", on(workloads=[LUBLIN | {"seeds": True}])),
    ],
)
def test_a_value_of_another_type_is_refused(field, document):
    refused(field, **document)


@pytest.mark.parametrize(
    ("field", "document"),
    [
        (r"workloads\[0\]\.estimates", on(workloads=[LUBLIN | {"estimates": "zzz"}])),
        (r"instances\[0\].*slack", of(instances=[SERVICES | {"slack": 2.0}])),
        (r"instances\[0\].*services", of(instances=[{"model": "000", "set": "small", "first": 1, "services": 11}])),
        ("report", on(report={"measures": ["policy"]})),
    ],
)
def test_what_no_run_could_do_is_refused_when_the_file_is_read(field, document):
    refused(field, **document)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"name = 'a' x\n", r"c\.toml: not TOML.*line 1"),
        (b"name = 'a'\n[[x]\n", r"c\.toml: not TOML.*line 2"),
        (b"name = '\xff'", r"c\.toml: byte 8: not UTF-8"),
        (b"# " + b"x" * LARGEST_FILE_BYTES, r"c\.toml: must be at most"),
        (b"name = 'a'\npolicies = ['EASYY']\n[[workloads]]\nmodel = 'lublin'\nseeds = 1", r"c\.toml: policies\[0\]"),
        (b"", r"c\.toml: must have either|c\.toml: name"),
    ],
)
def test_what_is_wrong_with_a_file_names_it(tmp_path, content, match):
    (tmp_path / "c.toml").write_bytes(content)
    with pytest.raises(InputError, match=match) as caught:
        read_campaign(tmp_path / "c.toml")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_and_a_directory_are_refused(tmp_path):
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            read_campaign(path)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
POSITIVE = st.floats(1e-3, 1e4)
NUMBERS = st.lists(st.integers(0, 40), min_size=1, max_size=6, unique=True).map(tuple)
LOADS = st.lists(st.floats(0.01, 3.0), max_size=3, unique_by=lambda load: f"{load:.12g}").map(tuple)
ONLINE_ENTRIES = st.builds(
    online.OnlineConfiguration,
    label=NAMES,
    policy=st.sampled_from(TABLE_5_2),
    penalty_s=st.just(0.0) | POSITIVE,
    bandwidth_gb_s=st.none() | POSITIVE,
    node_memory_gb=POSITIVE | st.just(8.0),
    order=st.sampled_from(("completions-first", "submissions-first")),
)
OPTIONS = st.builds(
    Options,
    time_limit_s=st.none() | POSITIVE,
    rounds=st.none() | st.integers(1, 9),
    window=st.integers(1, 4),
    pair_order=st.sampled_from(("load", "index")),
    search=st.sampled_from(("ends", "midpoints")),
    dominance=st.booleans(),
)
OFFLINE_ENTRIES = st.builds(
    offline.OfflineConfiguration,
    label=NAMES,
    algorithm=st.sampled_from(expand(["VP_*", "GREEDY", "BEST"])),
    options=OPTIONS,
    second_phase=st.sampled_from(("none", "average")),
)
LUBLINS = st.builds(
    LublinSource,
    name=NAMES,
    jobs=st.integers(1, 2000),
    nodes=st.integers(1, 300),
    seeds=NUMBERS,
    loads=LOADS,
    annotate=st.sampled_from(("dfrs", "none", "smp:4:2")),
    estimates=st.sampled_from(("perfect", "user")),
    first=st.none() | st.just(1),
)
PARTS = st.lists(st.floats(0.0, 0.99), min_size=1, max_size=2, unique_by=lambda part: f"{part:.12g}").map(tuple)
COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=2, unique=True).map(tuple)
INSTANCES = st.one_of(
    st.builds(
        ServicesSource,
        name=NAMES,
        nodes=COUNTS,
        services=COUNTS,
        dims=st.sampled_from(((2,), (2, 4))),
        slack=PARTS,
        sigma=PARTS,
        rho=PARTS,
        seeds=NUMBERS,
    ),
    st.builds(
        DissertationSource,
        name=NAMES,
        set=st.just("small"),
        first=st.integers(1, 9),
        services=st.none() | st.just((8,)),
    ),
    st.builds(VirtualClusterSource, name=NAMES, set=st.just("large"), first=st.integers(1, 9), parallel=st.booleans()),
)


@st.composite
def studies(draw):
    sources, entries = draw(st.sampled_from(((LUBLINS, ONLINE_ENTRIES), (INSTANCES, OFFLINE_ENTRIES))))
    return Study(
        name=draw(NAMES),
        sample=draw(st.just("") | NAMES),
        alone=draw(st.booleans()),
        sources=tuple(draw(st.lists(sources, min_size=1, max_size=2, unique_by=lambda source: source.name))),
        configurations=tuple(draw(st.lists(entries, min_size=1, max_size=4, unique_by=lambda entry: entry.label))),
    )


@settings(max_examples=60)
@given(
    st.builds(
        Campaign,
        name=NAMES,
        description=st.just("") | NAMES,
        keep_runs=st.booleans(),
        studies=st.lists(studies(), min_size=1, max_size=3, unique_by=lambda study: study.name).map(tuple),
    )
)
def test_a_campaign_and_its_file_turn_into_each_other(campaign):
    again = build_campaign(tomllib.loads(campaign_toml(campaign)), Path())
    assert told(again) == told(campaign)
    assert (again.name, again.description, again.keep_runs) == (campaign.name, campaign.description, campaign.keep_runs)
    assert campaign_toml(again) == campaign_toml(campaign)


def test_so_does_one_of_files_and_its_report(traced):
    (traced / "i.json").write_text("{}")
    document = {
        "name": "c",
        "report": {"measures": ["stretch_max", "minimum_yield"], "x": "target_load", "baseline": "FCFS"},
        "studies": [
            {
                "name": "a",
                "policies": ["EASY", {"policy": "FCFS", "penalty_s": 7}],
                "workloads": [
                    {"model": "swf", "file": "t.swf", "weeks": "1-2"},
                    {"model": "swf", "file": "t.swf", "name": "part", "jobs": "0:5", "loads": [0.5], "nodes": 16},
                ],
            },
            {"name": "b", "algorithms": ["VP_*"], "instances": [{"model": "files", "files": ["i.json"]}]},
        ],
    }
    campaign = build_campaign(document, traced)
    assert [source.name for source in campaign.studies[0].sources] == ["t", "part"]
    again = build_campaign(tomllib.loads(campaign_toml(campaign)), traced)
    assert told(again) == told(campaign) == told(build_campaign(tomllib.loads(tomli_w.dumps(document)), traced))
    assert again.report == campaign.report == ReportSettings(**document["report"])
    assert str(traced) not in campaign_toml(campaign)


@pytest.mark.parametrize(("settings", "count"), [(729, 81), (486, 54), (108, 27), (144, 576)])
def test_samples_are_spread(settings, count):
    picked = spread(settings, count)
    assert len(set(picked)) == count
    fast = min(27, count)
    assert len({k % fast for k, _ in picked}) == fast
    assert {s for _, s in picked} == set(range(-(-count // settings)))


@given(st.integers(1, 900), st.integers(1, 300))
def test_all_settings_come_once_before_any_twice_and_more_contain_fewer(settings, count):
    picked = spread(settings, count)
    assert len(picked) == len(set(picked)) == count
    assert all(0 <= setting < settings for setting, _ in picked)
    assert [sample for _, sample in picked] == [k // settings for k in range(count)]
    assert spread(settings, count + 10)[:count] == picked


def test_a_thin_sample_has_every_slack_and_size_equally_often():
    cases = dissertation(54, services=(100, 200)).scenarios()
    seen = [(c.parameters.slack, c.parameters.services, c.parameters.dims) for c in cases]
    assert len(set(seen)) == 54


@pytest.mark.parametrize(
    "source",
    [
        dissertation,
        lambda count: dissertation(count, small=True),
        lambda count: dissertation(count, services=(100,)),
        lambda count: clusters(count, large=True),
        lambda count: clusters(count, large=False),
        lambda count: clusters(count, large=True, parallel=True),
    ],
)
def test_a_larger_sample_contains_a_smaller(source):
    whole = source(1_000).scenarios()
    assert len({scenario.name for scenario in whole}) == 1_000
    for count in (1, 7, 333):
        assert source(count).scenarios() == whole[:count]


def test_samples_are_of_the_sets_asked_for():
    for small, nodes, services in ((False, 64, LARGE_SERVICES), (True, 4, SMALL_SERVICES)):
        cases = dissertation(300, small=small).scenarios()
        assert {scenario.parameters.nodes for scenario in cases} == {nodes}
        assert {scenario.parameters.services for scenario in cases} == set(services)
    assert {scenario.parameters.services for scenario in dissertation(300, services=(100,)).scenarios()} == {100}
    assert {scenario.parameters.parallel for scenario in clusters(50, large=True, parallel=True).scenarios()} == {True}
    assert {scenario.parameters.nodes for scenario in clusters(50, large=False).scenarios()} == {4}
