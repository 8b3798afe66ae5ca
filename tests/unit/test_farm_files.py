"""Files of farms and profiles: they come back as written, and bad ones give one line naming file and field."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.model.hardware import Hardware, Latency, Partition, Profile, Waits
from dfrs.model.hardware_files import (
    hardware_document,
    hardware_of,
    profile_document,
    profile_of,
    read_hardware,
    read_profile,
    write_hardware,
    write_profile,
)
from dfrs_reproduction.atif2011.programs import arrive_f

AMOUNTS = st.floats(0, 1e18)
BYTES = st.integers(1, 2**40)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(str.isprintable)


@st.composite
def sub_clusters(draw: st.DrawFn, name: str) -> Partition:
    sizes = draw(st.lists(BYTES, min_size=1, max_size=4, unique=True))
    seconds = tuple(draw(st.floats(1e-12, 1e3)) for _ in sizes)
    memory = draw(BYTES)
    return Partition(
        name=name,
        machines=draw(st.integers(1, 9)),
        cores=draw(st.integers(1, 9)),
        frequency_hz=draw(st.floats(1, 1e18)),
        cycles=draw(st.dictionaries(NAMES, AMOUNTS, max_size=3)),
        latency=draw(st.none() | st.just(Latency(sizes_bytes=tuple(sorted(sizes)), seconds=seconds))),
        node_memory_bytes=memory,
        machine_memory_bytes=memory + draw(BYTES),
    )


FARMS = st.lists(NAMES, min_size=1, max_size=3, unique=True).flatmap(
    lambda names: st.tuples(*map(sub_clusters, names)).map(lambda parts: Hardware(name="farm", partitions=parts))
)
PROFILES = st.builds(
    Profile,
    job=st.just("") | NAMES,
    cluster=NAMES,
    tau_s=st.floats(1e-3, 1e18),
    processes=st.integers(1, 1000),
    counters=st.dictionaries(NAMES, AMOUNTS, max_size=3),
    blocking=st.dictionaries(BYTES, AMOUNTS, max_size=3),
    waiting=st.dictionaries(BYTES, st.builds(Waits, count=AMOUNTS, mean_s=AMOUNTS), max_size=3),
    colocated=st.booleans(),
    memory_bytes=st.integers(0, 10**18),
    swap_bytes=st.integers(0, 10**18),
)
QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@QUICK
@given(FARMS)
def test_a_farm_comes_back(tmp_path: Path, farm: Hardware):
    path = tmp_path / "farm.json"
    write_hardware(farm, path)
    assert read_hardware(path).partitions == farm.partitions
    assert [p.name for p in tmp_path.iterdir()] == ["farm.json"]


@QUICK
@given(PROFILES)
def test_a_profile_comes_back(tmp_path: Path, profile: Profile):
    path = tmp_path / "profile.json"
    write_profile(profile, path)
    assert read_profile(path) == profile


FARM = hardware_document(arrive_f())
PROFILE = profile_document(
    Profile(
        job="FT.B.8",
        cluster="A",
        tau_s=50.0,
        processes=8,
        counters={"flop": 1e10},
        blocking={8: 3.0},
        waiting={8: Waits(count=2, mean_s=0.5)},
    )
)


def changed(document: dict[str, object], where: str, value: object) -> dict[str, object]:
    """A copy with the value at a path such as "clusters.0.name" replaced, or removed where it is ..."""
    result = copy.deepcopy(document)
    *path, last = where.split(".")
    at: object = result
    for part in path:
        at = at[int(part)] if isinstance(at, list) else at[part]  # type: ignore[index]
    key = int(last) if isinstance(at, list) else last
    if value is ...:
        del at[key]  # type: ignore[attr-defined]
    else:
        at[key] = value  # type: ignore[index]
    return result


BAD_FARMS = [
    ("format", "dfrs-farm/2", "f: format = \"dfrs-farm/2\": must be 'dfrs-farm/1'"),
    ("format", ..., "f: format: is missing"),
    ("clusters", [], "f: clusters = []: must have at least one"),
    ("clusters.1.frequency_hz", -3e9, "f: clusters[1].frequency_hz = -3000000000.0: must be greater than"),
    ("clusters.1.frequency_hz", 0, "f: clusters[1].frequency_hz = 0.0: must be at least 1"),
    ("clusters.1.frequency_hz", float("nan"), "f: clusters[1].frequency_hz = NaN: must be a finite number"),
    ("clusters.1.frequency_hz", 1e300, "f: clusters[1].frequency_hz = 1e+300: must be less than or equal"),
    ("clusters.1.frequency_hz", 10**400, "f: clusters[1].frequency_hz = 1000000"),
    ("clusters.1.frequency_hz", "3", 'f: clusters[1].frequency_hz = "3": must be a valid number'),
    ("clusters.0.latency", ..., None),
    ("clusters.0.latency.seconds", ..., "f: clusters[0].latency.seconds: is missing"),
    ("clusters.0.latency.seconds", [0.1], "f: clusters[0].latency.seconds = 1 values: must be one a size, 3"),
    ("clusters.0.latency.sizes_bytes", [3, 2, 1], "f: clusters[0].latency.sizes_bytes[1] = 2: sizes must ascend"),
    ("clusters.0.latency.sizes_bytes", [1, 2, 2], "f: clusters[0].latency.sizes_bytes[2] = 2: sizes must ascend"),
    ("clusters.0.latency.sizes_bytes", [], "f: clusters[0].latency.sizes_bytes = []: must have at least one"),
    ("clusters.0.latency.seconds.2", 1e-200, "f: clusters[0].latency.seconds[2] = 1e-200: must be 0 or at least"),
    ("clusters.0.latency.seconds.2", float("inf"), "f: clusters[0].latency.seconds[2] = Infinity: must be a finite n"),
    ("clusters.0.cycles.flop", -1, "f: clusters[0].cycles.flop = -1: must be greater than or equal to 0"),
    ("clusters.0.machines", 1.5, "f: clusters[0].machines = 1.5: must be a valid integer"),
    ("clusters.0.machines", 10**6, "f: clusters = 4000024 nodes: must be at most 1000000"),
    ("clusters.3.name", "A", "f: clusters[3].name = A: two sub-clusters have this name"),
    ("clusters.3.name", "", 'f: clusters[3].name = "": string should have at least 1 character'),
    ("clusters.3.colour", "red", "f: clusters[3].colour: there is no such field"),
    ("clusters.3.machine_memory_bytes", 1, "f: clusters[3].machine_memory_bytes = 1: must be at least 5.36871e+08"),
]

BAD_PROFILES = [
    ("format", "dfrs-farm/1", 'f: format = "dfrs-farm/1": must be'),
    ("tau_s", 0, "f: tau_s = 0.0: must be above 0"),
    ("tau_s", -1, "f: tau_s = -1: must be greater than or equal to 0"),
    ("processes", 0, "f: processes = 0: must be greater than or equal to 1"),
    ("processes", True, "f: processes = true: must be a valid integer"),
    ("counters.flop", float("nan"), "f: counters.flop = NaN: must be a finite number"),
    ("counters.flop", -1, "f: counters.flop = -1: must be greater"),
    ("counters", ..., "f: counters: is missing"),
    ("blocking.0.bytes", 0, "f: blocking[0].bytes = 0: must be greater than or equal to 1"),
    ("blocking.0.count", ..., "f: blocking[0].count: is missing"),
    ("blocking", [{"bytes": 8, "count": 1}] * 2, "f: blocking[1].bytes = 8: a size must stand once"),
    ("waiting.0.mean_s", -1, "f: waiting[0].mean_s = -1: must be greater"),
    ("colocated", "yes", 'f: colocated = "yes": must be a valid boolean'),
    ("swap_bytes", 10**19, "f: swap_bytes = 10000000000000000000: must be less than or equal to"),
]


@pytest.mark.parametrize(("where", "value", "message"), BAD_FARMS)
def test_bad_farms(where: str, value: object, message: str | None):
    document = changed(FARM, where, value)
    if message is None:
        assert hardware_of(document, "f").partitions[0].latency is None
        return
    with pytest.raises(InputError) as caught:
        hardware_of(document, "f")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("where", "value", "message"), BAD_PROFILES)
def test_bad_profiles(where: str, value: object, message: str):
    with pytest.raises(InputError) as caught:
        profile_of(changed(PROFILE, where, value), "f")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", ":1:1: not JSON: Expecting value"),
        (b"{", ":1:2: not JSON: Expecting property name enclosed in double quotes"),
        (b"[]", ": must be a JSON object"),
        (b'{"format": "dfrs-farm/1", "format": "dfrs-farm/1"}', ': key "format" stands twice in one object'),
        (b"\xff\xfe", ": byte 0: not UTF-8 text"),
        (b"[" * 100_000, ": nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", ": a number has too many digits"),
    ],
)
def test_files_that_are_no_documents(tmp_path: Path, text: bytes, message: str):
    path = tmp_path / "bad.json"
    path.write_bytes(text)
    for read in (read_hardware, read_profile):
        with pytest.raises(InputError) as caught:
            read(path)
        assert str(caught.value) == f"{path}{message}"


def test_files_that_are_not_there(tmp_path: Path):
    with pytest.raises(InputError, match=r"none.json: cannot read: No such file or directory"):
        read_hardware(tmp_path / "none.json")
    with pytest.raises(InputError, match=r"cannot read: Is a directory"):
        read_profile(tmp_path)
    with pytest.raises(InputError, match=r"farm.json: cannot write: No such file or directory"):
        write_hardware(arrive_f(), tmp_path / "none" / "farm.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def paths(document: object, before: tuple[str, ...] = ()) -> list[str]:
    """Every place in a document."""
    entries = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    result = [".".join(before)] if before else []
    for key, value in entries:
        result += paths(value, (*before, str(key)))
    return result


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_whatever_is_wrong_is_one_line(data: st.DataObject):
    document, build = data.draw(st.sampled_from([(FARM, hardware_of), (PROFILE, profile_of)]))
    where = data.draw(st.sampled_from(paths(document)))
    bad = changed(document, where, data.draw(JSON | st.just(...)))
    message = ""
    try:
        build(bad, "file.json")
    except InputError as error:
        message = str(error)
    assert message == "" or message.startswith("file.json: ")
    assert len(message.splitlines()) <= 1
    assert len(message) < 600


def test_documents_are_what_json_gives():
    for document in (FARM, PROFILE):
        assert json.loads(json.dumps(document)) == document


@pytest.mark.parametrize("job", ["two\nlines", "\ud800", "\x1b[31m"])
def test_names_are_printable_text_on_one_line(tmp_path: Path, job: str):
    document = profile_document(Profile(job="x", cluster="A", tau_s=50.0, processes=1, counters={"flop": 1.0}))
    path = tmp_path / "p.json"
    for changed in ({"job": job}, {"cluster": job}, {"counters": {job: 1.0}}, {job: 1}):
        path.write_text(json.dumps(document | changed))
        with pytest.raises(InputError) as caught:
            read_profile(path)
        told = str(caught.value)
        assert told.startswith(f"{path}: ")
        assert told.isprintable()


def test_a_mark_of_byte_order_is_passed_over(tmp_path: Path):
    path = tmp_path / "farm.json"
    write_hardware(arrive_f(), path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert hardware_document(read_hardware(path)) == hardware_document(arrive_f())
    path.write_bytes('{"name": "J\u00f6b"}'.encode("cp1252"))
    with pytest.raises(InputError, match="byte 11: not UTF-8 text"):
        read_hardware(path)
