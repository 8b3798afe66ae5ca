"""The command line as a user meets it: real processes, exit statuses, one line for what is wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DFRS = Path(sys.executable).with_name("dfrs")
BUFFERED = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
"""Here what is redirected is written when 8 KiB of it are there, and at the end, as it is for most users."""

GOOD = {
    "format": "dfrs-instance/1",
    "resources": [{"name": "memory", "kind": "rigid"}, {"name": "cpu", "kind": "fluid"}],
    "nodes": 4,
    "services": [{"name": f"s{i}", "needs": {"cpu": 0.9, "memory": 0.2}} for i in range(6)],
}


def dfrs(*arguments, cwd):
    return subprocess.run([DFRS, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120)


def write(folder, document, name="x.json"):
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def changed(**services):
    document = json.loads(json.dumps(GOOD))
    document["services"][3] |= services
    return document


def test_json_has_every_promised_field(tmp_path):
    write(tmp_path, GOOD)
    done = dfrs("allocate", "x.json", "--algorithm", "VP_CPSUM", "--json", cwd=tmp_path)
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert set(document) >= {
        "algorithm",
        "status",
        "minimum_yield",
        "average_yield",
        "bound",
        "gap",
        "utilization",
        "runtime_s",
        "placement",
        "yields",
    }
    assert document["algorithm"] == "VP_CPSUM"
    assert 0 < document["minimum_yield"] <= document["bound"] <= 1


def test_several_algorithms_are_sorted_and_the_best_is_written_and_valid(tmp_path):
    write(tmp_path, GOOD)
    done = dfrs(
        "allocate",
        "x.json",
        "-a",
        "GREEDY_S1_P7,VP_*",
        "-a",
        "BEST",
        "--time-limit",
        0.2,
        "--json",
        "-o",
        "a.json",
        "--picture",
        "a.png",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    yields = [r["minimum_yield"] for r in json.loads(done.stdout)["results"]]
    assert yields == sorted(yields, reverse=True)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert dfrs("validate", "a.json", cwd=tmp_path).returncode == 0
    assert dfrs("plot", "a.json", "-o", "b.svg", cwd=tmp_path).returncode == 0


def test_the_allocation_on_fewer_nodes_is_written_and_valid(tmp_path):
    write(tmp_path, GOOD)
    shrunk = ("allocate", "x.json", "--shrink", 0.9, "-a", "VP_CPSUM", "--second-phase", "none", "--json")
    done = dfrs(*shrunk, "-o", "a.json", "--picture", "a.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    off = json.loads(done.stdout)["turn_off"]
    assert off
    written = json.loads((tmp_path / "a.json").read_text())
    assert written["algorithm"] == "VP_CPSUM"
    placement = written["placement"]
    assert not {node for nodes in placement.values() for node in nodes} & set(off)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert dfrs("validate", "a.json", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (changed(needs={"cpu": -0.1}), ["services[3].needs.cpu", "-0.1", "greater than or equal to 0"]),
        (changed(needs={"cpu": float("nan")}), ["services[3].needs.cpu", "NaN", "finite"]),
        (changed(needs={"gpu": 0.1}), ["services[3].needs", 'unknown resource "gpu"', "memory, cpu"]),
        (changed(needs={"memory": 1.2}), ["services[3].needs.memory", "1.2", "must fit on a node"]),
        (changed(name="s1"), ["services[3].name", '"s1"', "unique"]),
        (changed(tasks=0), ["services[3].tasks", "0", "greater than or equal to 1"]),
        (changed(minimum_yield=1.5), ["services[3].minimum_yield", "1.5", "less than or equal to 1"]),
        (changed(cpus=2), ["services[3].cpus", "not permitted"]),
        (GOOD | {"nodes": 0}, ["nodes", "0", "greater than or equal to 1"]),
        (GOOD | {"nodes": [{"name": "a"}, {"name": "a"}]}, ["nodes[1].name", '"a"', "unique"]),
        (GOOD | {"format": "other/1"}, ["format", "other/1", "dfrs-instance/1"]),
        (json.dumps(GOOD)[:150], ["x.json:1:", "not JSON"]),
        ('{"format": 1, "format": 2}', ['"format"', "twice"]),
        ("", ["x.json:1:1", "not JSON"]),
        ("[" * 100_000, ["x.json", "nested too deeply"]),
    ],
)
def test_bad_input_gives_one_line_and_status_2(tmp_path, document, words):
    write(tmp_path, document)
    done = dfrs("allocate", "x.json", "-a", "VP_FFSUM", "-o", "out.json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr
    assert not (tmp_path / "out.json").exists()


def test_a_two_gigabyte_file_that_is_not_json_is_refused_at_once(tmp_path):
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(2 * 2**30)
    started = time.monotonic()
    done = dfrs("allocate", "big.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "at most" in done.stderr
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    "arguments",
    [
        ("allocate", "none.json"),
        ("allocate", "x.json", "-a", "VP_CPSUN"),
        ("allocate", "x.json", "--time-limit", "nan"),
        ("allocate", "x.json", "--rounds", "0"),
        ("allocate", "x.json", "--window", "0"),
        ("allocate", "x.json", "-a", "ADAPT"),
        ("allocate", "x.json", "--picture", "x.doc"),
        ("allocate", "x.json", "--nodes", "many"),
        ("allocate", "x.json", "-o", "no/such/folder/x.json"),
        ("allocate", "x.json", "--shrink", "2"),
        ("generate", "services", "--resources", "3"),
        ("generate", "virtual-clusters", "--nodes", "64", "--tasks", "10", "--slack", "0.1"),
        ("frobnicate",),
    ],
)
def test_bad_arguments_give_one_line_and_status_2(tmp_path, arguments):
    write(tmp_path, GOOD)
    done = dfrs(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_infeasible_instances_end_with_status_3_and_name_the_resource(tmp_path):
    write(tmp_path, GOOD | {"services": [{"name": f"s{i}", "needs": {"memory": 0.9, "cpu": 0.1}} for i in range(6)]})
    done = dfrs("allocate", "x.json", "-a", "VP_CPSUM", "--json", cwd=tmp_path)
    assert done.returncode == 3
    assert json.loads(done.stdout)["status"] == "infeasible"
    assert "memory" in done.stderr


def test_exact_search_proves_that_nothing_fits_where_aggregates_do(tmp_path):
    services = [{"name": f"s{i}", "needs": {"memory": 0.55, "cpu": 0.1}} for i in range(5)]
    write(tmp_path, GOOD | {"services": services})
    done = dfrs("allocate", "x.json", "-a", "BEST", "--time-limit", 0.5, "--json", cwd=tmp_path)
    assert done.returncode == 3
    assert json.loads(done.stdout)["status"] == "infeasible"
    assert "memory" in done.stderr


def test_the_checker_refuses_what_was_tampered_with(tmp_path):
    write(tmp_path, GOOD)
    assert dfrs("allocate", "x.json", "-a", "VP_CPSUM", "-o", "a.json", cwd=tmp_path).returncode == 0
    document = json.loads((tmp_path / "a.json").read_text())
    document["placement"] = {name: ["n0"] for name in document["placement"]}
    write(tmp_path, document, "a.json")
    done = dfrs("validate", "a.json", cwd=tmp_path)
    assert done.returncode == 1
    assert "n0" in done.stdout


def test_the_first_use_says_that_kernels_are_compiled_and_the_second_does_not(tmp_path):
    write(tmp_path, GOOD)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [DFRS, "allocate", "x.json", "-a", "GREEDY_S1_P7"]
    first, second = (
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        for _ in range(2)
    )
    assert "Compiling kernels" in first.stderr
    assert "Compiling kernels" not in second.stderr


def test_an_interrupt_ends_with_one_line_and_leaves_no_half_written_file(tmp_path):
    write(tmp_path, GOOD)
    document = dfrs(
        "generate", "services", "--nodes", 64, "--services", 300, "--slack", 0.1, "-o", "y.json", cwd=tmp_path
    )
    assert document.returncode == 0
    process = subprocess.Popen(
        [DFRS, "allocate", "y.json", "-a", "BEST", "--time-limit", "60", "-o", "a.json"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=30)
    assert process.returncode == 130
    assert message.strip().splitlines()[-1] == "dfrs: interrupted"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.json", "y.json"]


def test_a_closed_pipe_is_no_traceback(tmp_path):
    for command in ("algorithms | head -1", "algorithms BEST --json | true", "generate lublin --jobs 5 | true"):
        line = ["bash", "-c", f"{DFRS} {command}; exit $PIPESTATUS"]
        done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, env=BUFFERED, timeout=120)
        assert done.stderr == ""
        assert done.returncode in {0, 1}


@pytest.mark.parametrize("command", ["algorithms BEST --json", "generate lublin --jobs 5", "algorithms BEST"])
def test_a_short_answer_that_cannot_be_written_is_one_line(tmp_path, command):
    line = ["sh", "-c", f"{DFRS} {command} >/dev/full"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, env=BUFFERED, timeout=120)
    assert (done.returncode, done.stderr) == (1, "dfrs: cannot write: No space left on device\n")


def test_what_is_wrong_is_told_where_what_was_printed_before_cannot_be_written(tmp_path):
    program = (
        "from dfrs.cli import main\n"
        "from dfrs.model.errors import InputError\n"
        "def app(**_):\n"
        "    print('answer')\n"
        "    raise InputError('wrong')\n"
        "main.app = app\n"
        "main.main()\n"
    )
    with open("/dev/full", "w") as full:
        line = [sys.executable, "-c", program]
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, env=BUFFERED, timeout=120)
    assert (done.returncode, done.stderr) == (2, "dfrs: wrong\n")


@pytest.mark.parametrize("more", [(), ("--shrink", 0.9)])
def test_an_allocation_that_cannot_be_written_has_been_shown_and_the_other_way_round(tmp_path, more):
    """Standard output is a full device; then no file may have any content."""
    write(tmp_path, GOOD)
    command = ("allocate", "x.json", "-a", "VP_CPSUM", "--json", "-o", "a.json", *more)
    words = " ".join(map(str, (sys.executable, "-m", "dfrs.cli.main", *command)))

    def shell(line):
        command = ["sh", "-c", line]
        return subprocess.run(command, cwd=tmp_path, env=BUFFERED, capture_output=True, text=True, timeout=120)

    full = shell(f"{words} >/dev/full")
    assert (full.returncode, full.stderr.splitlines()[-1]) == (1, "dfrs: cannot write: No space left on device")
    (tmp_path / "a.json").rename(tmp_path / "kept.json")
    assert dfrs("validate", "kept.json", cwd=tmp_path).returncode == 0
    limited = shell(f"ulimit -f 0; {words} | cat")
    assert "a.json: cannot write: File too large" in limited.stderr
    assert json.loads(limited.stdout)["algorithm"] == "VP_CPSUM"


@pytest.mark.parametrize("verb", ["validate", "plot"])
def test_a_file_that_the_system_refuses_is_named(tmp_path, verb):
    """With a name so long that the file system does not even look."""
    name = "x" * 300
    done = dfrs(verb, name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"dfrs: {name}: File name too long\n"


def test_generated_csv_reads_back_as_the_same_instance(tmp_path):
    for name in ("s.json", "s.csv"):
        assert (
            dfrs(
                "generate", "services", "--nodes", 4, "--services", 9, "--seed", 5, "-o", name, cwd=tmp_path
            ).returncode
            == 0
        )
    results = [
        json.loads(dfrs("allocate", name, "--nodes", 4, "-a", "VP_CPSUM", "--json", cwd=tmp_path).stdout)
        for name in ("s.json", "s.csv")
    ]
    assert results[0]["placement"] == results[1]["placement"]
    assert results[0]["yields"] == pytest.approx(results[1]["yields"])


def test_rounds_repeat_to_the_bit(tmp_path):
    dfrs("generate", "services", "--nodes", 8, "--services", 30, "--slack", 0.2, "-o", "s.json", cwd=tmp_path)
    texts = []
    for _ in range(2):
        document = json.loads(dfrs("allocate", "s.json", "--rounds", 3, "--seed", 4, "--json", cwd=tmp_path).stdout)
        del document["runtime_s"]
        texts.append(json.dumps(document))
    assert texts[0] == texts[1]
