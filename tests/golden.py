"""What the program writes today, as digests: so that a change which is to change nothing can prove it.

`python -m tests.golden record FILE` runs some 70 simulations, 80 allocations, three campaigns and a recorded live log,
and writes a digest of each file that they make; `python -m tests.golden compare FILE` says which have changed.
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import dfrs
from dfrs.cli.main import main as command
from dfrs.placement.registry import ALGORITHMS
from dfrs.testing import run_virtually
from tests.storms import Storm

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "examples" / "demo.swf.gz"

BATCH = ("FCFS", "EASY", "CONSERVATIVE", "EQUIPARTITION")
SETS = (
    "LOS",
    "Delayed-LOS",
    "Delayed-LOS/CS=3",
    "Hybrid-LOS",
    "EASY-D",
    "LOS-D",
    "EASY-E",
    "LOS-E",
    "Delayed-LOS-E",
    "EASY-DE",
    "LOS-DE",
    "Hybrid-LOS-E",
)
FRACTIONAL = (
    "Greedy*/OPT=MIN",
    "GreedyP*/OPT=MIN",
    "GreedyPM*/OPT=MIN",
    "Greedy/per/OPT=MIN",
    "GreedyP/per/OPT=MIN/MVT=300",
    "GreedyPM/per/OPT=AVG/MFT=300",
    "GreedyPM*/per/OPT=MIN",
    "GreedyPM*/per/OPT=MIN/MVT=600",
    "GreedyPM*/per/OPT=AVG/MVT=600",
    "GreedyPM*/due/OPT=MIN",
    "GreedyPM*/stretch-per/OPT=MAX",
    "MCB*/OPT=MIN",
    "MCB*/per/OPT=MIN",
    "MCB/per/OPT=AVG/MVT=300",
    "/per/OPT=MIN",
    "/stretch-per/OPT=AVG",
    "/per/OPT=AVG/MFT=600",
    "GreedyPM*/per/OPT=MIN/MVT=600/BUDGET=5",
    "MCB*/OPT=MIN/NEEDS=0.1",
)
HETEROGENEOUS = ("FARM-EASY", "ARRIVE-F", "ARRIVE-F/HEAD", "DFRS-FARM")
DEMONSTRATED = ("EASY", "CONSERVATIVE", "EQUIPARTITION", "GreedyPM*/per/OPT=MIN/MVT=600", "MCB*/OPT=MIN", "Delayed-LOS")
"""On the committed trace: kept as a test for good."""

UNEQUAL = "cpu,memory\n" + "1,1\n" * 8 + "0.5,1\n" * 4 + "1,0.5\n" * 4
FAILING = "time_s,node,condition\n1000,3,down\n5000,3,up\n6000,0,drain\n9000,0,up\n20000,7,down\n90000,7,up\n"

CAMPAIGNS = {
    "online": """
name = "online"
policies = ["EASY", "GreedyPM*", "GreedyPM*/per/OPT=MIN/MVT=600"]
[[workloads]]
model = "lublin"
jobs = 60
nodes = 8
seeds = "1-3"
loads = [0.5, 0.9]
""",
    "offline": """
name = "offline"
algorithms = ["VP_*", "GREEDY_*", "MCB8", "RRNZ"]
[[instances]]
model = "services"
nodes = 8
services = [20, 30]
slack = [0.3, 0.6]
seeds = "1-3"
""",
    "elastic": """
name = "elastic"
policies = ["EASY-DE", "LOS-DE", "Hybrid-LOS-E"]
[[workloads]]
model = "cwf"
jobs = 80
seeds = "1-2"
loads = [0.7, 0.9]
pd = 0.3
pe = 0.2
pr = 0.1
""",
}


def run(*arguments):
    """One command of `dfrs` in this process."""
    before, sys.argv = sys.argv, ["dfrs", *map(str, arguments)]
    said, status = io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            command()
    except SystemExit as ended:
        status = ended.code or 0
    finally:
        sys.argv = before
    assert status == 0, f"{' '.join(map(str, arguments))}: {said.getvalue()[-500:]}"


def simulate(name, trace, policies, *options):
    """Simulate a trace under policies into the directory of that name."""
    named = [part for policy in policies for part in ("-p", policy)]
    run("simulate", trace, *named, "--seed", 1, "-o", name, *options)


def simulations():
    """All families of policies on traces of all kinds."""
    run("generate", "lublin", "--jobs", 80, "--nodes", 16, "--seed", 7, "-o", "lublin.swf.gz")
    elastic = [
        "--unit",
        "32",
        "--ps",
        "0.2",
        "--load",
        "0.9",
        "--pd",
        "0.5",
        "--pe",
        "0.2",
        "--pr",
        "0.1",
        "--seed",
        "1",
    ]
    run("generate", "cwf", "--jobs", 120, "--procs", 320, *elastic, "-o", "elastic.cwf")
    Path("unequal.csv").write_text(UNEQUAL)
    Path("failing.csv").write_text(FAILING)
    simulate("lublin", "lublin.swf.gz", [*BATCH, *FRACTIONAL])
    simulate("elastic", "elastic.cwf", [*SETS, FRACTIONAL[7]], "--annotate", "unit:32")
    simulate("failing", "lublin.swf.gz", ["EASY", "FCFS", *FRACTIONAL[5:9]], "--node-events", "failing.csv")
    simulate("unequal", "lublin.swf.gz", [*FRACTIONAL[5:9], FRACTIONAL[11]], "--node-file", "unequal.csv")
    simulate("estimates", "lublin.swf.gz", ["EASY", "CONSERVATIVE"], "--estimates", 3, "--order", "submissions-first")
    simulate("moving", "lublin.swf.gz", [*FRACTIONAL[5:9]], "--penalty", 20, "--bandwidth", 10)
    for number in (1, 2, 3):
        named = [part for policy in HETEROGENEOUS for part in ("-p", policy)]
        run("farm", "simulate", "-e", number, *named, "-o", f"farm{number}")


def demonstration():
    """The committed trace."""
    simulate("demo", DEMO, DEMONSTRATED)


def allocations():
    """Every algorithm that ends by itself, on two instances."""
    found = {}
    for seed, (nodes, services) in enumerate([(4, 9), (8, 30)]):
        instance = dfrs.generate_services(nodes=nodes, services=services, seed=seed)
        for name in ALGORITHMS:
            if name in {"BEST", "ADAPT", "ADAPT_OPT"} or (name == "OPT" and seed):
                continue
            outcome = dfrs.allocate(instance, name, seed=1)
            chosen = outcome.allocation
            found[f"{seed} {name}"] = None if chosen is None else [chosen.place.tolist(), chosen.scaled_yields.tolist()]
    Path("allocations.json").write_text(json.dumps(found, indent=1))


def campaigns():
    """Three campaigns, and the tables of their results."""
    for name, text in CAMPAIGNS.items():
        Path(f"{name}.toml").write_text(text)
        run("campaign", "run", f"{name}.toml", "--workers", 1)
        run("campaign", "export", f"{name}.toml", "-o", f"{name}.csv")
        shutil.rmtree(f"{name}.results", ignore_errors=True)


def live():
    """A log of a live cluster, and what the simulator makes of it."""
    os.makedirs("live")

    async def story(loop):
        storm = Storm("live", 3, loop, frozenset())
        await storm.start()
        for _ in range(60):
            await storm.act()
        await storm.calm()
        lines = [line async for line in storm.controller.log()]
        Path("live/log.jsonl").write_text("".join(line if line.endswith("\n") else line + "\n" for line in lines))
        await storm.controller.stop()

    run_virtually(3, story)
    for policies in ((), ("EASY", "FCFS")):
        named = [part for policy in policies for part in ("-p", policy)]
        run("simulate", "--from-log", "live", *named, "-o", f"live-{len(policies)}")


def digests():
    """Of all files below this directory that are text of ours; databases and pictures are left out."""
    kinds = {".csv", ".json", ".jsonl", ".cwf", ""}
    paths = sorted(path for path in Path().rglob("*") if path.is_file() and path.suffix in kinds)
    return {str(path): sha256(path.read_bytes()).hexdigest()[:32] for path in paths}


def kept():
    """Schedules of the committed trace, made in this directory: the part that is a test for good.

    Metrics and what random numbers were drawn for are left out: other libraries may round a logarithm otherwise.
    """
    demonstration()
    return {name: digest for name, digest in digests().items() if name.endswith(("jobs.csv", "events.csv"))}


def everything():
    """All of it, in a directory that is gone then; digests by file."""
    with tempfile.TemporaryDirectory() as made_in, contextlib.chdir(made_in):
        for part in (simulations, demonstration, allocations, campaigns, live):
            part()
        return digests()


def main():
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["record", "compare", "keep"], help="keep: the part that is a test")
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    if options.verb == "keep":
        with tempfile.TemporaryDirectory() as made_in, contextlib.chdir(made_in):
            found = kept()
        options.file.write_text(json.dumps(found, indent=1) + "\n")
        return
    made = everything()
    if options.verb == "record":
        options.file.write_text(json.dumps(made, indent=1) + "\n")
        print(f"{len(made)} files")
        return
    was = json.loads(options.file.read_text())
    differs = sorted(name for name in was.keys() | made.keys() if was.get(name) != made.get(name))
    print(*differs, f"{len(was)} files, {len(differs)} differ", sep="\n")
    sys.exit(bool(differs))


if __name__ == "__main__":
    main()
