"""Results are found again by what they are of, and nothing that happens to the files or processes spoils them."""

import ast
import errno
import fcntl
import inspect
import json
from dataclasses import fields, replace
from pathlib import Path

import polars as pl
import pytest

import dfrs
from dfrs.experiments import store as store_module
from dfrs.experiments.campaign_engine import CampaignEngine
from dfrs.experiments.kinds import offline, online
from dfrs.experiments.kinds.farm import FARM
from dfrs.experiments.kinds.farm_random import FARM_RANDOM
from dfrs.experiments.kinds.offline import OFFLINE
from dfrs.experiments.kinds.online import ONLINE
from dfrs.experiments.planned_runs import PlannedRun, Work, code_digest, perform, source_digest
from dfrs.experiments.runners import InProcess
from dfrs.experiments.sources.instances import InstanceFile, RandomInstance
from dfrs.experiments.sources.traces import LublinTrace, TracePart
from dfrs.experiments.spec import build_campaign
from dfrs.experiments.store import FORMAT, Store
from dfrs.model.errors import InputError
from dfrs.placement.registry import Options
from dfrs.workloads.services import ServiceScenario, VirtualClusterScenario
from tests.fake_runs import FAKE, FakeConfiguration, code, executed, planned, same
from tests.processes import kill, script, until

HOLD = """
import sys, time
from pathlib import Path
from dfrs.experiments.store import Store
from tests.fake_runs import planned
store = Store(Path(sys.argv[1]))
mine = planned(Path(sys.argv[2]), 2)[0]
print(store.claim(mine), flush=True)
sys.stdin.readline()
store.close() if sys.argv[3] == "close" else store.release(mine.key)
print("free", flush=True)
sys.stdin.readline()
"""


def rows(asked):
    return [row for run in asked for row in perform(Work(runs=(run,), source=source_digest(FAKE.code)))]


def filled(directory, asked, files=1):
    """A store with the results of `asked` in so many files."""
    store = Store(directory)
    for k in range(files):
        store.add(FAKE, rows(asked[k::files]))
        store.flush(FAKE)
    return store


def parts(store):
    return sorted(store.folder(FAKE).glob("*.parquet"))


def contents(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def refused(directory, *words):
    """The store is refused in one line, and nothing was changed."""
    before = contents(directory)
    with pytest.raises(InputError) as raised:
        Store(directory)
    told = str(raised.value)
    assert "\n" not in told
    assert str(directory) in told
    assert all(word in told for word in words)
    assert contents(directory) == before


def test_what_is_flushed_is_found_by_every_later_store_to_the_bit(tmp_path):
    asked = planned(tmp_path / "marks", 7, FakeConfiguration(), FakeConfiguration(what="ValueError", label="bad"))
    store = Store(tmp_path / "store")
    assert store.known(FAKE) == {}
    assert store.results(FAKE).is_empty()
    made = rows(asked)
    store.add(FAKE, made[:5])
    store.flush(FAKE)
    store.add(FAKE, made[5:])
    assert sorted(store.results(FAKE).to_dicts(), key=str) == sorted(made, key=str)
    assert len(Store(tmp_path / "store").results(FAKE)) == 5
    store.flush(FAKE)
    later = Store(tmp_path / "store")
    assert later.known(FAKE) == {run.key: run.configuration.label == "bad" for run in asked}
    assert sorted(later.results(FAKE).to_dicts(), key=str) == sorted(made, key=str)
    assert dict(later.results(FAKE).schema) == FAKE.columns


def test_every_file_opens_by_itself_with_polars(tmp_path):
    asked = planned(tmp_path / "marks", 5)
    store = filled(tmp_path / "store", asked, files=2)
    frame = pl.read_parquet(store.folder(FAKE) / "*.parquet")
    assert set(frame["cell"]) == {run.name for run in asked}
    assert dict(frame.schema) == FAKE.columns
    assert [len(pl.read_parquet(path)) for path in parts(store)] in ([2, 3], [3, 2])


def test_a_flush_of_nothing_writes_nothing(tmp_path):
    store = Store(tmp_path / "store")
    store.flush(FAKE)
    store.merge(FAKE)
    assert not store.folder(FAKE).exists()


# Keys and seeds.


def trace_cell(label="a", **settings):
    return PlannedRun(
        kind=ONLINE,
        scenario=LublinTrace(seed=3, jobs=60),
        configuration=online.OnlineConfiguration(label=label, policy="EASY", **settings),
    )


def test_key_and_seed_are_functions_of_the_name_that_stored_results_rely_on():
    run = trace_cell()
    assert run.name == (
        "lublin-3 jobs=60 nodes=128 annotate=dfrs estimates=perfect"
        " | EASY | penalty_s=300 node_memory_gb=8 completions-first"
    )
    # A key or seed that changes silently would make results of years unfindable, or mix those of two seeds.
    assert (run.key, run.seed) == ("42f168f7f0a2f4a5", 209167668823211)


def test_key_and_seed_are_the_same_in_every_process_and_under_every_label():
    code = (
        "from tests.unit.test_store import trace_cell\n"
        "for label in 'ab':\n"
        "    run = trace_cell(label, penalty_s=0.1 + 0.2)\n"
        "    print(run.key, run.seed)\n"
    )
    processes = [script(code, hash_seed=k) for k in (1, 2)]
    told = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    run = trace_cell("c", penalty_s=0.1 + 0.2)
    assert told == [[f"{run.key} {run.seed}"] * 2] * 2


SCENARIO = ServiceScenario(nodes=2, services=4, dims=2, slack=0.5, sigma=0.25, rho=0.5)
CLUSTERS = VirtualClusterScenario(nodes=2, tasks=4, slack=0.5, memory_cov=0.25, cpu_cov=0.5)
PART = TracePart(path=Path("t.swf"), digest="0" * 64, first=2, end=8)
OTHER = {
    "annotate": "google",
    "estimates": "factor:2",
    "order": "submissions-first",
    "search": "midpoints",
    "pair_order": "index",
    "second_phase": "average",
    "options": Options(rounds=3),
    "algorithm": "GREEDY",
    "policy": "FCFS",
    "pauses": "keep",
    "moves": "none",
    "trim": "10%",
    "digest": "1" * 64,
    "parameters": replace(SCENARIO, slack=0.6),
}


def changed(name, value):
    """Another value of a field, no further away than it need be."""
    if name in OTHER:
        return OTHER[name]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return 0.75 if value is None or value == 0 else value * (1 + 1e-9)


@pytest.mark.parametrize(
    ("whole", "free"),
    [
        (LublinTrace(seed=3, load=0.7), set()),
        (PART, {"path"}),
        (replace(PART, week=4, load=0.7, nodes=9), {"path"}),
        (online.OnlineConfiguration(label="a", policy="EASY"), {"label"}),
        (online.OnlineConfiguration(label="a", policy="EASY", bandwidth_gb_s=1.5), {"label"}),
        (RandomInstance(parameters=SCENARIO, seed=3), set()),
        (InstanceFile(path=Path("i.json"), digest="0" * 64), {"path"}),
        (offline.OfflineConfiguration(label="a", algorithm="GA"), {"label"}),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "name") else "",
)
def test_every_setting_is_in_the_name(whole, free):
    for field in fields(whole):
        if field.init and field.name not in free:
            other = replace(whole, **{field.name: changed(field.name, getattr(whole, field.name))})
            assert other.name != whole.name, field.name


@pytest.mark.parametrize("scenario", [SCENARIO, CLUSTERS], ids=["services", "virtual-clusters"])
def test_every_setting_of_a_scenario_is_in_the_name(scenario):
    whole = RandomInstance(parameters=scenario, seed=3)
    for field in fields(scenario):
        value = getattr(scenario, field.name)
        more = value + 2 if field.name == "dims" else changed(field.name, value)
        assert replace(whole, parameters=replace(scenario, **{field.name: more})).name != whole.name, field.name


@pytest.mark.parametrize("name", offline.OPTIONS)
def test_every_option_of_an_algorithm_is_in_the_name(name):
    entry = offline.OfflineConfiguration(label="a", algorithm="GA")
    options = Options(**{name: 3 if name == "rounds" else changed(name, getattr(Options(), name))})
    assert replace(entry, options=options).name != entry.name


def keys(document, directory):
    """Keys by case and label."""
    return {(run.scenario.name, run.configuration.label): run.key for run in build_campaign(document, directory).runs}


def test_a_changed_setting_changes_the_cells_it_touches_and_no_others(tmp_path):
    policies = [{"policy": "FCFS", "label": "f"}, {"policy": "EASY", "label": "e"}]
    lublin = {"model": "lublin", "jobs": 60, "seeds": "1-3"}
    document = {"name": "c", "policies": policies, "workloads": [lublin]}
    before = keys(document, tmp_path)
    assert len(set(before.values())) == 6

    one = keys(document | {"policies": [policies[0] | {"penalty_s": 5.0}, policies[1]]}, tmp_path)
    assert {place for place, key in one.items() if before[place] != key} == {p for p in before if p[1] == "f"}
    every = keys(document | {"settings": {"penalty_s": 5.0}}, tmp_path)
    assert set(every.values()).isdisjoint(before.values())
    assert {place: one[place] for place in one if place[1] == "f"} == {p: every[p] for p in every if p[1] == "f"}

    more = keys(document | {"workloads": [lublin | {"seeds": "1-4"}]}, tmp_path)
    assert before.items() < more.items()
    jobs = keys(document | {"workloads": [lublin | {"jobs": 61}]}, tmp_path)
    assert set(jobs.values()).isdisjoint(before.values())
    said = {"name": "d", "description": "x", "report": {"measures": ["load"]}, "sample": "y"}
    assert keys(document | said, tmp_path) == before
    alone = keys(document | {"alone": True}, tmp_path)
    assert set(alone.values()).isdisjoint(before.values())


def test_a_label_and_what_is_the_default_change_nothing(tmp_path):
    document = {"name": "c", "policies": ["FCFS"], "workloads": [{"model": "lublin", "jobs": 60, "seeds": 1}]}
    told = {"policies": [{"policy": "FCFS", "label": "first come"}], "settings": {"penalty_s": 300.0}}
    assert set(keys(document | told, tmp_path).values()) == set(keys(document, tmp_path).values())


# The code that results are of.


def test_results_of_other_code_are_in_another_folder_not_used_and_named(tmp_path, monkeypatch):
    asked = planned(tmp_path / "marks", 3)
    old = filled(tmp_path / "store", asked)
    before = contents(tmp_path / "store")
    monkeypatch.setattr(store_module, "code_digest", lambda _: "another")
    store = Store(tmp_path / "store")
    assert store.folder(FAKE) != (folder := old.directory / f"fake-{code()}")
    assert store.others(FAKE) == [folder]
    assert store.known(FAKE) == {}
    assert store.results(FAKE).is_empty()
    store.add(FAKE, rows(asked[:2]))
    store.flush(FAKE)
    assert set(Store(tmp_path / "store").known(FAKE)) == {run.key for run in asked[:2]}
    monkeypatch.undo()
    again = Store(tmp_path / "store")
    assert set(again.known(FAKE)) == {run.key for run in asked}
    assert again.others(FAKE) == [store.directory / "fake-another"]
    assert before.items() <= contents(tmp_path / "store").items()


SOURCE = '"""What it is."""\n\nLIMIT = 3\n\n\ndef half(x):\n    """Of x."""\n    return x / 2\n'
SAME = {
    "docstring": SOURCE.replace("What it is", "What it may be"),
    "docstring of a function": SOURCE.replace("Of x", "Half of x"),
    "no docstring": SOURCE.replace('    """Of x."""\n', ""),
    "comment": SOURCE.replace("LIMIT = 3", "LIMIT = 3  # as agreed"),
    "layout": SOURCE.replace("x / 2", "(\n        x\n        / 2\n    )").replace("\n\n\n", "\n"),
    "text under a constant": SOURCE.replace("LIMIT = 3", 'LIMIT = 3\n"""Of all."""'),
}
CHANGED = {
    "constant": SOURCE.replace("= 3", "= 4"),
    "float": SOURCE.replace("= 3", "= 3.0"),
    "operator": SOURCE.replace("/", "//"),
    "argument": SOURCE.replace("half(x)", "half(x=1)"),
    "text": SOURCE.replace("3", '"3"'),
    "statement": SOURCE + "LIMIT += 1\n",
}


def digest(tmp_path, monkeypatch, source, name="part.py", of=code_digest):
    """Of a package with a file and a directory, one file of which is `name` with `source`."""
    for path in ("__init__.py", "part.py", "sub/one.py", "sub/deep/two.py", "beside.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(SOURCE)
    (tmp_path / name).write_text(source)
    monkeypatch.setattr(dfrs, "__file__", str(tmp_path / "__init__.py"))
    return of.__wrapped__(("part.py", "sub"))


@pytest.mark.parametrize("how", SAME)
def test_comments_docstrings_and_layout_do_not_count_as_code(how, tmp_path, monkeypatch):
    for name in ("part.py", "sub/deep/two.py"):
        assert digest(tmp_path, monkeypatch, SAME[how], name) == digest(tmp_path, monkeypatch, SOURCE)
    assert SAME[how] != SOURCE


def test_a_worker_is_asked_for_the_same_source_to_the_byte(tmp_path, monkeypatch):
    plain = digest(tmp_path, monkeypatch, SOURCE, of=source_digest)
    assert digest(tmp_path, monkeypatch, SOURCE, of=source_digest) == plain
    for how in (*SAME.values(), *CHANGED.values()):
        assert digest(tmp_path, monkeypatch, how, "sub/deep/two.py", of=source_digest) != plain


@pytest.mark.parametrize("how", CHANGED)
def test_whatever_may_change_a_result_counts_as_code(how, tmp_path, monkeypatch):
    for name in ("part.py", "sub/deep/two.py"):
        assert digest(tmp_path, monkeypatch, CHANGED[how], name) != digest(tmp_path, monkeypatch, SOURCE)
    assert digest(tmp_path, monkeypatch, CHANGED[how], "beside.py") == digest(tmp_path, monkeypatch, SOURCE)


def test_a_new_file_and_other_libraries_count_as_code(tmp_path, monkeypatch):
    before = digest(tmp_path, monkeypatch, SOURCE)
    assert digest(tmp_path, monkeypatch, SOURCE, "sub/three.py") != before
    (tmp_path / "sub" / "three.py").unlink()
    assert digest(tmp_path, monkeypatch, SOURCE) == before
    monkeypatch.setattr("dfrs.experiments.planned_runs.version", lambda library: f"0 of {library}")
    assert digest(tmp_path, monkeypatch, SOURCE) != before


NEVER_IN_A_RESULT = {
    "api.py",
    "experiments/planned_runs.py",
    "experiments/experiment.py",
    "experiments/fields.py",
    "experiments/saved_runs.py",
    "runs/directory.py",
}
"""The package's door; what names planned, whose keys and seeds a test of their own pins down; what reads
campaign files into planned, whose names say all of it; what writes kept runs."""


@pytest.mark.parametrize("kind", [ONLINE, OFFLINE, FARM, FARM_RANDOM], ids=lambda kind: kind.name)
def test_all_that_a_kind_imports_counts_as_its_code(kind):
    root = Path(dfrs.__file__).parent
    parts = [root / part for part in kind.code]
    counted = {path for part in parts for path in (part.rglob("*.py") if part.is_dir() else [part])}
    missed, seen, left = set(), set(), [Path(inspect.getfile(kind.run))]
    while left:
        path = left.pop()
        name = path.relative_to(root).as_posix()
        if path in seen or path.name == "__init__.py" or name in NEVER_IN_A_RESULT:
            continue
        seen.add(path)
        if path not in counted:
            missed.add(name)
        left += imported(path, root)
    assert len(seen) > 20
    assert missed == set()


def imported(path, root):
    """Files of the package that a file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dfrs":
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                file = (root.parent / name.replace(".", "/")).with_suffix(".py")
                if file.is_file():
                    yield file


# Directories and files that are not what they should be.


@pytest.mark.parametrize("text", [json.dumps({"format": "dfrs-store/0"}), "[]", "{}", "", "no JSON", "\xff", "null"])
def test_a_store_of_another_format_is_refused_and_left_as_it_is(text, tmp_path):
    filled(tmp_path / "store", planned(tmp_path / "marks", 2)).close()
    (tmp_path / "store" / "store.json").write_text(text, encoding="latin-1")
    refused(tmp_path / "store", "store.json", FORMAT)


def test_a_directory_with_other_files_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_bytes(b"\xff\xd8")
    refused(tmp_path / "photos", "no store of results")


def test_an_empty_directory_and_one_that_is_not_there_become_stores_with_the_first_result_or_claim(tmp_path):
    (tmp_path / "empty").mkdir()
    asked = planned(tmp_path / "marks", 2)
    for k, directory in enumerate((tmp_path / "empty", tmp_path / "a" / "b")):
        store = Store(directory)
        assert store.known(FAKE) == {}
        assert store.results(FAKE).is_empty()
        assert not directory.exists() or not list(directory.iterdir())
        if k:
            assert store.claim(asked[0])
        else:
            store.add(FAKE, rows(asked))
            store.flush(FAKE)
        store.close()
        assert json.loads((directory / "store.json").read_text()) == {"format": FORMAT}
        assert len(Store(directory).known(FAKE)) == (0 if k else 2)


def test_a_file_where_the_directory_should_be_is_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    for directory in (tmp_path / "file", tmp_path / "file" / "store"):
        with pytest.raises(InputError, match="file") as raised:
            Store(directory).claim(planned(tmp_path / "marks", 1)[0])
        assert "\n" not in str(raised.value)
    assert (tmp_path / "file").read_text() == "x"


def test_a_process_that_was_killed_while_it_made_the_store_does_not_spoil_the_directory(tmp_path):
    (tmp_path / ".store.json.2f8ka1x0").write_text('{"form')
    store = filled(tmp_path, planned(tmp_path.with_name("marks"), 2))
    assert len(store.results(FAKE)) == 2


BROKEN = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "cut at the end": lambda data: data[:-1],
    "other": lambda data: b"number,what\n1,value\n",
    "zeros": lambda data: bytes(len(data)),
    "head": lambda data: bytes(200) + data[200:],
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_one_line_that_names_it_and_without_it_only_its_cells_run_again(how, tmp_path):
    asked = planned(tmp_path / "marks", 6)
    store = filled(tmp_path / "store", asked, files=3)
    wanted = same(store)
    broken = parts(store)[1]
    held = {str(number) for number in pl.read_parquet(broken)["number"]}
    broken.write_bytes(BROKEN[how](broken.read_bytes()))
    for ask in (Store.known, Store.results, Store.merge):
        with pytest.raises(InputError) as raised:
            ask(Store(tmp_path / "store"), FAKE)
        told = str(raised.value)
        assert told.startswith(f"{broken}: ")
        assert "remove it" in told
        assert "\n" not in told
    broken.unlink()
    before = executed(tmp_path / "marks")
    later = Store(tmp_path / "store")
    tally = CampaignEngine(later, InProcess()).run(asked)
    assert (tally.known, tally.executed) == (4, 2)
    assert {number for number, _ in executed(tmp_path / "marks") - before} == held
    assert same(later).equals(wanted)


def test_no_flipped_byte_goes_unnoticed(tmp_path):
    store = filled(tmp_path / "store", planned(tmp_path / "marks", 40))
    path = parts(store)[0]
    data = path.read_bytes()
    for place in range(0, len(data), len(data) // 60):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        with pytest.raises(InputError, match="remove it"):
            Store(tmp_path / "store").results(FAKE)


def test_a_file_of_a_table_with_other_columns_is_one_line(tmp_path):
    store = filled(tmp_path / "store", planned(tmp_path / "marks", 2))
    pl.DataFrame({"key": ["a"]}).write_parquet(parts(store)[0])
    with pytest.raises(InputError, match=r"part-.*is damaged.*remove it"):
        Store(tmp_path / "store").known(FAKE)


# The same run twice, and merging.


def test_of_several_results_of_a_cell_one_counts_and_success_before_failure(tmp_path):
    marks = tmp_path / "marks"
    asked = planned(marks, 3, FakeConfiguration(what="ValueError", at=(0, 1)))
    one, other = Store(tmp_path / "store"), Store(tmp_path / "store")
    for store in (one, other):
        store.add(FAKE, rows(asked))
    one.flush(FAKE)
    (marks / "fixed").touch()
    other.add(FAKE, rows(asked[:1]))
    other.flush(FAKE)
    for store in (one, other, Store(tmp_path / "store")):
        assert store.known(FAKE) == {asked[0].key: False, asked[1].key: True, asked[2].key: False}
        frame = store.results(FAKE)
        assert sorted(frame["key"]) == sorted(run.key for run in asked)
        status = dict(zip(frame["key"], frame["status"], strict=True))
        assert [status[run.key] for run in asked] == ["complete", "failed", "complete"]


def many(tmp_path, files=40):
    return filled(
        tmp_path / "store",
        planned(tmp_path / "marks", files, FakeConfiguration(what="ValueError", at=(3,))),
        files=files,
    )


def test_merging_leaves_one_file_with_the_same_results(tmp_path):
    store = many(tmp_path)
    beside = Store(tmp_path / "store")
    wanted, before = store.results(FAKE).sort("key"), store.known(FAKE).copy()
    beside.known(FAKE)
    assert len(parts(store)) == 40
    store.merge(FAKE)
    assert len(parts(store)) == 1
    for asked in (store, beside, Store(tmp_path / "store")):
        assert asked.results(FAKE).sort("key").equals(wanted)
        assert asked.known(FAKE) == before
    store.merge(FAKE)
    assert len(parts(store)) == 1


def test_what_is_not_worth_merging_is_left_as_it_is(tmp_path):
    store = filled(tmp_path / "store", planned(tmp_path / "marks", 3), files=3)
    before = contents(tmp_path / "store")
    store.merge(FAKE)
    assert contents(tmp_path / "store") == before


@pytest.mark.parametrize("removed", [0, 1, 20])
def test_a_merge_that_ended_halfway_changes_no_results(removed, tmp_path, monkeypatch):
    store = many(tmp_path)
    wanted = store.results(FAKE).sort("key")
    unlink, left = Path.unlink, [removed]

    def ended(path, **how):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        unlink(path, **how)

    monkeypatch.setattr(Path, "unlink", ended)
    with pytest.raises(KeyboardInterrupt):
        store.merge(FAKE)
    monkeypatch.undo()
    later = Store(tmp_path / "store")
    assert len(parts(later)) == 41 - removed
    assert later.results(FAKE).sort("key").equals(wanted)
    later.merge(FAKE)
    assert later.results(FAKE).sort("key").equals(wanted)
    assert Store(tmp_path / "store").results(FAKE).sort("key").equals(wanted)


def test_a_merge_that_cannot_write_leaves_everything_as_it_is(tmp_path, monkeypatch):
    store = many(tmp_path)
    wanted, before = store.results(FAKE).sort("key"), contents(tmp_path / "store")

    def full(path, _):
        raise InputError(f"{path}: cannot write: No space left on device")

    monkeypatch.setattr(store_module, "write_bytes", full)
    store.merge(FAKE)
    assert contents(tmp_path / "store") == before
    assert store.results(FAKE).sort("key").equals(wanted)


# Claims.


@pytest.fixture
def holding(tmp_path):
    started = []

    def hold(how):
        process = script(HOLD, tmp_path / "store", tmp_path / "marks", how)
        started.append(process)
        assert process.stdout.readline() == "True\n"
        return process

    yield hold
    for process in started:
        kill(process)


@pytest.mark.parametrize("how", ["close", "release", "kill"])
def test_a_claim_is_of_one_process_until_that_gives_it_up_or_ends(how, holding, tmp_path):
    mine, other = planned(tmp_path / "marks", 2)
    store = Store(tmp_path / "store")
    process = holding(how)
    assert not store.claim(mine)
    assert store.claim(other)
    if how == "kill":
        kill(process)
    else:
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "free\n"
    assert until(lambda: store.claim(mine), seconds=5)


def test_a_flush_ends_the_claims_of_what_it_wrote_and_no_others(tmp_path):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from dfrs.experiments.store import Store\n"
        "from tests.fake_runs import planned\n"
        "store = Store(Path(sys.argv[1]))\n"
        "print([store.claim(run) for run in planned(Path(sys.argv[2]), 3)])\n"
    )
    asked = planned(tmp_path / "marks", 3)
    store = Store(tmp_path / "store")
    assert [store.claim(run) for run in asked] == [True] * 3
    store.add(FAKE, rows(asked[1:]))
    for free in (False, True):
        if free:
            store.flush(FAKE)
        told, error = script(code, tmp_path / "store", tmp_path / "marks").communicate(timeout=60)
        assert told.strip() == str([False, free, free]), error


def test_where_the_file_system_has_no_locks_every_cell_can_be_claimed(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    store = Store(tmp_path / "store")
    monkeypatch.setattr(fcntl, "lockf", no_locks)
    asked = planned(tmp_path / "marks", 2)
    assert CampaignEngine(store, InProcess()).run(asked).executed == 2
    assert len(Store(tmp_path / "store").results(FAKE)) == 2
