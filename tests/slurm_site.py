"""`dfrs serve --backend slurm` and its share agents, on a Slurm of `tests.slurm_cluster`."""

import json
import os
import ssl
import subprocess
import sys
import time

import httpx

PATIENCE_S, START_S = 60.0, 240.0
"""For what a running controller does, and for its start: it may compile meanwhile."""
CONF = """ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=2
PartitionName=main Nodes=ALL Default=YES DefMemPerCPU=50 MaxTime=INFINITE State=UP
"""


class Site:
    """The cluster, and dfrs on its head host, with some options."""

    def __init__(self, slurm, path, *options):
        self.slurm, self.path, self.options = slurm, path, options
        self.started = slurm.folder / "started"
        self.started.touch()
        self.started.chmod(0o666)
        self.processes = {}
        self.client = httpx.Client(timeout=30)

    def __enter__(self):
        try:
            self.dfrs("slurm", "install", "--partition", "main", "--yes")
            self.slurm.reconfigure()
            self.serve()
            until(lambda: len(self.get("/nodes")) == len(self.slurm.nodes), "all nodes", START_S)
            for node in self.slurm.nodes:
                self.share(node)
            until(lambda: all(node["shares"] == "cgroup-v1" for node in self.get("/nodes")), "share agents", START_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in list(self.processes):
            self.kill(name)
        self.client.close()

    def spawn(self, name, words, host):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with (self.path.parent / f"{name}.log").open("a") as log:
            self.processes[name] = subprocess.Popen(
                [*self.slurm.inside(host), sys.executable, "-m", "dfrs.cli.main", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def dfrs(self, *words):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return self.slurm.run(sys.executable, "-m", "dfrs.cli.main", *words, env=environment).stdout

    def serve(self):
        (self.path / "client.json").unlink(missing_ok=True)
        words = ["--backend", "slurm", "--partition", "main", "--listen", f"{self.slurm.address}:7070"]
        self.spawn("serve", ["serve", "--state", str(self.path), "--discovery", "NONE", *words, *self.options], "ctl")
        until(self._is_ready, "served", START_S)
        found = json.loads((self.path / "client.json").read_text())
        self.client = httpx.Client(
            base_url=f"{found['url'].split(',')[0]}/api/v1",
            headers={"authorization": f"Bearer {found['token']}"},
            verify=self._trust(),
            timeout=30,
        )
        until(self._answers, "answers")

    def _is_ready(self):
        log = self.path.parent / "serve.log"
        assert self.processes["serve"].poll() is None, log.read_text()[-2000:]
        return (self.path / "client.json").exists()

    def _trust(self):
        return ssl.create_default_context(cafile=str(self.path / "tls" / "ca.pem"))

    def _answers(self):
        try:
            return self.client.get("/cluster").status_code == 200
        except httpx.HTTPError:
            return False

    def share(self, node):
        words = ["--server", str(self.client.base_url).partition("/api")[0], "--ca", str(self.path / "tls" / "ca.pem")]
        words += ["--token-file", str(self.path / "agent.token"), "--name", node]
        self.spawn(f"share-{node}", ["slurm", "share-agent", *words], node)

    def kill(self, name):
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def sbatch(self, *options, wrap="sleep 600"):
        """A job that says when it starts."""
        wrap = f"echo $SLURM_JOB_ID >> {self.started}; {wrap}"
        return self.slurm.sbatch("--chdir=/", *options, wrap=wrap)

    def starts(self, job):
        return self.started.read_text().split().count(str(job))

    def get(self, path):
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def admin_comment(self, job):
        lines = self.slurm.scontrol("show", "job", job).splitlines()
        found = [line.strip().removeprefix("AdminComment=") for line in lines if "AdminComment=" in line]
        return found[0].strip() if found else ""


def until(condition, what, seconds=PATIENCE_S):
    end_s = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end_s, f"still not: {what}"
        time.sleep(0.05)
    return found
