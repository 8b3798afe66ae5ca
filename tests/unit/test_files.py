"""Files: what is written reads back as the same arrays, and writing is all or nothing."""

import json
import os
import subprocess
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given

from dfrs import InputError, generate_services
from dfrs.model.hardware import Profile
from dfrs.model.hardware_files import profile_document, write_profile
from dfrs.model.writing import require_writable, write_text
from dfrs.placement.plan_document import read_plan
from dfrs.runs.validator.allocations import read_document
from dfrs.workloads import files
from dfrs.workloads.documents import InstanceDocument
from tests.strategies import parallel_instances
from tests.unit.test_validate import shop


def assert_same(one, other):
    assert one.nodes == other.nodes
    assert one.services == other.services
    assert one.resources == other.resources
    for name in ("capacity", "minimum_yield", "service_of", "need", "rigid", "move_cost", "base", "slope"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@given(parallel_instances)
def test_documents_round_trip(instance):
    first = np.searchsorted(instance.service_of, instance.service_of)
    assume((instance.rigid == instance.rigid[first]).all())
    assume((instance.need * instance.rigid <= instance.capacity.max(axis=0)).all())
    document = json.loads(json.dumps(files.instance_document(instance)))
    assert_same(instance, files.build_instance(InstanceDocument.model_validate(document)))


def test_components_kinds_and_unequal_nodes_round_trip():
    instance = shop()
    document = json.loads(json.dumps(files.instance_document(instance)))
    again = files.build_instance(InstanceDocument.model_validate(document))
    assert_same(instance, again)
    assert instance.components == again.components


def test_components_take_a_share_of_fluid_needs_and_their_own_requirements():
    instance = shop()
    web, db = instance.components.index("web"), instance.components.index("db")
    assert instance.need[web].tolist() == [0.1, 0.5, 0.2]
    assert instance.need[db].tolist() == [0.4, 0.25, 0.1]
    assert instance.service_of[web] == instance.service_of[db]


def test_csv_refuses_what_it_has_no_place_for():
    with pytest.raises(InputError, match="write JSON"):
        files.instance_csv(shop())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("name,colour\na,red\n", 'column "colour"'),
        ("tasks,cpu:fluid\n1,0.2\n", 'no column "name"'),
        ("name,cpu:fluid\na,0.2,7\n", "3 cells: must be 2"),
        ("name,cpu:fluid\na,much\n", ':2: cpu:fluid = "much"'),
        ("name,cpu:fluid\na,0.1\na,0.2\n", "unique"),
        ("name,cpu:liquid\na,0.1\n", "resources[0].kind"),
        ('cpu:fluid,name\n0.1,a\n0.2,"b\n0.3,c\n', ":3: not CSV: "),
        pytest.param('name,cpu:fluid\n"a,0.1\n' + "b,0.1\n" * 30_000, ":2: not CSV: ", id="an open quote"),
        ('name,cpu:fluid\n"a\nb",0.1\nc,much\n', ":4: cpu:fluid"),
    ],
)
def test_bad_csv_is_refused_with_its_place(tmp_path, text, words):
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        files.read_instance(path, 2)
    assert words in str(error.value)


def test_a_number_of_thousands_of_digits_is_one_line(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"format": "dfrs-instance/1", "nodes": ' + "9" * 5000 + "}")
    plan = partial(read_plan, instance=generate_services(nodes=2, services=2, seed=0))
    for read in (files.read_instance, read_document, plan):
        with pytest.raises(InputError, match=r"x\.json: a number has too many digits"):
            read(path)


def test_writing_to_a_full_disk_leaves_the_old_file(tmp_path):
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path], check=False).returncode
    ):
        pytest.skip("needs the right to mount a small file system")
    try:
        path = tmp_path / "x.json"
        write_text(path, "old")
        with pytest.raises(InputError, match="No space left"):
            write_text(path, "x" * 200_000)
        assert path.read_text() == "old"
        assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "current").symlink_to("runs/7")
    for text in ("first", "second"):
        require_writable(tmp_path / "current")
        write_text(tmp_path / "current", text)
        assert (tmp_path / "current").is_symlink()
        assert [path.read_text() for path in (tmp_path / "runs").iterdir()] == [text]
    (tmp_path / "runs").rename(tmp_path / "gone")
    with pytest.raises(InputError, match="current: cannot write: there is no directory"):
        require_writable(tmp_path / "current")


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    profile = Profile(job="x", cluster="A", tau_s=1.0, processes=1, counters={})
    # A reader that waits for no writer; a pipe holds more than is written.
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        require_writable(pipe)
        write_text(pipe, "text\n")
        write_profile(profile, pipe)
        first, _, document = os.read(reader, 10_000).decode().partition("\n")
    finally:
        os.close(reader)
    assert first == "text"
    assert json.loads(document) == profile_document(profile)
    assert [path.is_fifo() for path in tmp_path.iterdir()] == [True]


def test_placements_with_unknown_names_are_refused(tmp_path):
    instance = generate_services(nodes=2, services=2, seed=0)
    path = tmp_path / "a.json"
    for placement, words in (
        ({"s0": ["n0"]}, 'no entry for service "s1"'),
        ({"s0": ["n0"], "s1": ["n9"]}, "no such node"),
        ({"s0": ["n0"], "s1": ["n0", "n1"]}, "one for each of 1 tasks"),
        ({"s0": ["n0"], "s1": ["n0"], "x": ["n0"]}, "no such service"),
        (None, "placed nothing"),
    ):
        path.write_text(json.dumps({"format": "dfrs-allocation/1", "placement": placement}))
        with pytest.raises(InputError) as error:
            files.read_placement(path, instance)
        assert words in str(error.value)
