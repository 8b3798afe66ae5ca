"""`dfrs serve`: the controller of a live cluster."""

import gc
import getpass
import math
import os
import re
import shutil
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from dfrs.cli.console import out, print_json
from dfrs.cli.extras import require
from dfrs.cli.live.quota_file import read_quotas
from dfrs.cli.quantities import parse_bytes, parse_seconds, quoted
from dfrs.cli.simulate.policies import complete
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError
from dfrs.model.text import has_controls

if TYPE_CHECKING:
    import ssl

    from dfrs.live.api.certificates import Certificates
    from dfrs.live.api.server import Address, ServedController
    from dfrs.live.controller.backend import Backend
    from dfrs.live.controller.outbox import Send
    from dfrs.live.controller.settings import ControllerSettings
    from dfrs.live.protocol.agent_door import AgentDoor
    from dfrs.live.protocol.share_door import ShareDoor

DATABASE = "DFRS_DATABASE"
NOTIFY_URL = "DFRS_NOTIFY_URL"
LISTEN = "127.0.0.1:7070"
POLICY = "GreedyPM*/per/OPT=MIN/MVT=600/REBALANCE"
DISCOVERY = "OBSERVE"
NO_SETTINGS: Mapping[str, float] = MappingProxyType({})
COLLECTED = (50_000, 20, 20)
"""How rarely the collector of cycles looks, see `gc.set_threshold`."""
SAFETY, LIMITS, KEPT, SEVERAL = "Access", "Defaults", "What is kept", "Several controllers"
TOLD = "Notifications"
ENGINE = "Who runs jobs"


class Engine(StrEnum):
    """Who runs jobs."""

    AGENTS = "agents"
    SLURM = "slurm"


def serve(
    state: Annotated[
        Path | None,
        typer.Option(help="Directory of its own; default: DFRS_STATE, or ~/.local/state/dfrs.", show_default=False),
    ] = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="TLS is required except on loopback.")] = LISTEN,
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="Who gets what; see: dfrs policies.", autocompletion=complete)
    ] = POLICY,
    discovery: Annotated[
        str, typer.Option(help="How needs are found: NONE, DYNAMIC, DYNAMIC+MIGRATION or OBSERVE.")
    ] = DISCOVERY,
    discovery_setting: Annotated[
        list[str] | None,
        typer.Option(
            "--discovery-setting",
            metavar="NAME=SECONDS",
            show_default=False,
            help="One of its settings, such as discovery_s=30; repeat it for several.",
        ),
    ] = None,
    shadow: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Say what this policy would do, too.",
            show_default=False,
            autocompletion=complete,
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Of the cluster.")] = "dfrs",
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            show_default=False,
            help=f"Default: {DATABASE}, or SQLite in the state directory. One with a password goes there or in a file.",
        ),
    ] = None,
    database_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the database's URL.", show_default=False)
    ] = None,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            rich_help_panel=SEVERAL,
            help="Wait as long as another controller on this PostgreSQL leads, and take over when it is gone.",
        ),
    ] = False,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=SEVERAL,
            metavar="URL",
            show_default=False,
            help="Address of another controller on this database, for this account's verbs; repeat it for several.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=SAFETY, help="Your own, PEM, with its chain; else one is made.", show_default=False
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(rich_help_panel=SAFETY, help="Of your own certificate, PEM.", show_default=False)
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=SAFETY,
            metavar="NAME",
            show_default=False,
            help="Another name or address of this machine, for its certificate; repeat it for several.",
        ),
    ] = None,
    submissions_per_s: Annotated[
        float | None,
        typer.Option(min=0.001, rich_help_panel=SAFETY, help="Of one token, on average.", show_default=False),
    ] = None,
    quotas: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=SAFETY,
            show_default=False,
            help="TOML with what each user may have: open jobs, CPU, memory, submissions a minute.",
        ),
    ] = None,
    fair_share: Annotated[
        str | None,
        typer.Option(
            metavar="HALF-LIFE",
            rich_help_panel=LIMITS,
            show_default=False,
            help="Who has used much lately goes behind others; half of what was used is forgotten after so long: 7d.",
        ),
    ] = None,
    open_metrics: Annotated[
        bool, typer.Option("--open-metrics", rich_help_panel=SAFETY, help="/metrics without a token from loopback.")
    ] = False,
    default_memory: Annotated[
        str, typer.Option(rich_help_panel=LIMITS, help="Of a task whose user says nothing.")
    ] = "256M",
    lost_after: Annotated[
        float,
        typer.Option(min=1, rich_help_panel=LIMITS, help="Seconds of silence after which a node's jobs are lost."),
    ] = 180.0,
    start_within: Annotated[
        float,
        typer.Option(
            min=1,
            rich_help_panel=LIMITS,
            help="Seconds in which a node must have started a task; if not, the job goes elsewhere, and the node gets "
            "no jobs for a while.",
        ),
    ] = 60.0,
    reference_cpus: Annotated[
        float | None,
        typer.Option(
            min=0.01, rich_help_panel=LIMITS, help="Default: the largest of the first nodes.", show_default=False
        ),
    ] = None,
    reference_memory: Annotated[
        str | None,
        typer.Option(rich_help_panel=LIMITS, help="Default: the largest of the first nodes.", show_default=False),
    ] = None,
    report_every: Annotated[
        float, typer.Option(rich_help_panel=LIMITS, help="Seconds between two reports of a node.", min=0.1, max=60)
    ] = 1.0,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="AGE",
            rich_help_panel=KEPT,
            show_default=False,
            help="Prune events, ended jobs and history that are older, as 30d; default: keep all.",
        ),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=KEPT,
            show_default=False,
            help="Write what is pruned to files there before, for dfrs export --archive.",
        ),
    ] = None,
    notify_command: Annotated[
        Path | None,
        typer.Option(
            metavar="PROGRAM",
            envvar="DFRS_NOTIFY_COMMAND",
            rich_help_panel=TOLD,
            show_default=False,
            help="Started for each thing that users are to be told, as JSON on its standard input.",
        ),
    ] = None,
    notify_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar=NOTIFY_URL,
            rich_help_panel=TOLD,
            show_default=False,
            help=f"Post the same JSON there. If it holds a secret, set {NOTIFY_URL} instead.",
        ),
    ] = None,
    backend: Annotated[
        Engine,
        typer.Option(rich_help_panel=ENGINE, help="dfrs agents, or Slurm: jobs then come by sbatch."),
    ] = Engine.AGENTS,
    partition: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=ENGINE, show_default=False, help="With --backend slurm: which of Slurm's partitions."
        ),
    ] = None,
    agent_socket: Annotated[
        int | None, typer.Option(hidden=True, help="Number of a listening socket, inherited, where agents come too.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    as_json: Annotated[bool, typer.Option("--json", help="Where it is, as one JSON document, once it is.")] = False,
) -> None:
    """Run the controller of a cluster, until SIGTERM or Ctrl-C. Jobs run on while it is away.

    Leaves client.json and agent.token in its state directory, for this account only: the first is found by all other
    verbs, the second is what `dfrs agent` wants. Beyond loopback it makes an authority, ca.pem, for users and agents.

    Examples:

        dfrs serve

        dfrs serve --listen 0.0.0.0:7070 --policy EASY --shadow 'GreedyPM*/per/OPT=MIN/MVT=600'

        dfrs serve --listen 0.0.0.0:7070 --database-file pg.url --standby --peer https://head2:7070

        dfrs serve --backend slurm --partition shared
    """
    from dfrs.live.api.server import read_address
    from dfrs.live.client import check_url, state_directory
    from dfrs.live.controller.settings import ControllerSettings

    if (certificate is None) != (key is None):
        raise InputError("--certificate, --key: must be given together")
    if archive is not None and keep is None:
        raise InputError("--archive: is for what is pruned; say after which age with --keep")
    directory = (state or state_directory()).absolute()
    settings = ControllerSettings(
        database=database_url(database, database_file, directory),
        standby=standby,
        cluster=_cluster(name),
        policy=policy,
        discovery=discovery,
        shadow=shadow,
        default_memory_bytes=parse_bytes(default_memory, "--default-memory"),
        discovery_settings=_discovery_settings(discovery_setting or []),
        report_s=report_every,
        lost_s=lost_after,
        start_s=start_within,
        keep_s=None if keep is None else parse_seconds(keep, "--keep"),
        archive=None if archive is None else archive.absolute(),
        quotas=None if quotas is None else read_quotas(quotas),
        fair_share_s=None if fair_share is None else parse_seconds(fair_share, "--fair-share"),
        notify=_notify(notify_command, notify_url),
        reference_cores=reference_cpus,
        reference_bytes=None if reference_memory is None else parse_bytes(reference_memory, "--reference-memory"),
    )
    plan = _Plan(
        partition=_partition(backend, partition),
        state=directory,
        listen=read_address(listen),
        settings=settings,
        certificate=certificate,
        key=key,
        hosts=tuple(host or ()),
        agent_socket=agent_socket,
        submissions_per_s=submissions_per_s,
        open_metrics=open_metrics,
        peers=tuple(check_url(each, "--peer") for each in peer or ()),
        as_json=as_json,
    )
    _run(plan, log_level)


def _run(plan: "_Plan", log_level: str) -> None:
    """Serve as the only controller with that state directory, which is made if need be."""
    import asyncio

    from dfrs.live.allocator import give_memory_back
    from dfrs.live.home import lock, make_private

    give_memory_back()
    doors = _doors(plan.partition)
    controller = make_controller(plan.settings, doors.backend)
    _set_up_logs(log_level)
    make_private(plan.state)
    os.umask(0o077)
    with lock(plan.state):
        asyncio.run(_serve(plan, controller, doors))


@dataclass(frozen=True, slots=True)
class _Doors:
    """A backend, and where what runs on its nodes comes in."""

    backend: "Backend"
    agents: "AgentDoor | None" = None
    shares: "ShareDoor | None" = None


def _doors(partition: str | None) -> _Doors:
    if partition is None:
        from dfrs.live.backends.agents.backend import AgentsBackend

        agents = AgentsBackend()
        return _Doors(agents, agents=agents)
    from dfrs.live.backends.slurm.backend import SlurmBackend
    from dfrs.live.backends.slurm.port import SlurmCommands

    slurm = SlurmBackend(SlurmCommands(partition))
    return _Doors(slurm, shares=slurm.board)


def _partition(backend: Engine, partition: str | None) -> str | None:
    """Of Slurm; None where the backend is another. Raises InputError."""
    if backend is Engine.AGENTS:
        if partition is not None:
            raise InputError("--partition: is one of Slurm's; say --backend slurm")
        return None
    if partition is None or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", partition):
        raise InputError("--partition: --backend slurm needs the name of one of Slurm's partitions")
    missing = [name for name in ("scontrol", "squeue", "sinfo", "scancel") if shutil.which(name) is None]
    if missing:
        raise InputError(f"--backend slurm: {missing[0]} is not in the PATH: install Slurm's commands here")
    return partition


def _notify(program: Path | None, url: str | None) -> "dict[str, Send]":
    """Ways to tell users of their jobs. Raises InputError."""
    from dfrs.live.controller.senders import CommandSender, UrlSender

    ways: dict[str, Send] = {}
    if program is not None:
        found = program.absolute()
        if not (found.is_file() and os.access(found, os.X_OK)):
            raise InputError(f"--notify-command {quoted(program)}: must be a file that this account may execute")
        ways["command"] = CommandSender(found)
    if url is not None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InputError("--notify-url: must be an address, as https://example.org/hook")
        ways["url"] = UrlSender(url)
    return ways


def _discovery_settings(given: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in given:
        name, equals, value = text.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError(f"--discovery-setting {quoted(text)}: must be NAME=NUMBER")
    return found


def make_controller(settings: "ControllerSettings", backend: "Backend") -> "ServedController":
    """The controller with the policies and the discovery that `settings` name, over `backend`. Raises InputError."""
    from importlib import import_module

    from dfrs.bounds.snapshot import snapshot_bound
    from dfrs.kernels.compiling import compilation
    from dfrs.live.controller.service import Controller
    from dfrs.policies.discovery.methods import find_discovery
    from dfrs.policies.names import find_live_policy, find_policy

    # Loads numba now: a controller that stands by is not to do so when it takes over.
    import_module("dfrs.kernels.dispatcher")
    compilation.apart = True
    discovery = find_discovery(settings.discovery, **settings.discovery_settings)
    step_s = getattr(discovery, "step_s", math.inf)
    if settings.report_s > step_s / 2:
        raise InputError(
            f"--report-every {settings.report_s:g}: must be at most {step_s / 2:g}, half of discovery's step_s"
        )
    return Controller(
        settings,
        find_live_policy(settings.policy),
        discovery,
        shadow=None if settings.shadow is None else find_live_policy(settings.shadow),
        bound=snapshot_bound,
        backend=backend,
        find=find_policy,
    )


def database_url(url: str | None, file: Path | None, directory: Path, environ: Mapping[str, str] = os.environ) -> str:
    """The database: as given, in the file, in the environment, or SQLite in `directory`. Raises InputError.

    A password on the command line is refused, since everyone on the machine can read that.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    if url is not None and file is not None:
        raise InputError("--database, --database-file: only one may be given")
    where, text = "--database", url
    if file is not None:
        try:
            where, text = str(file), file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: cannot be read: {getattr(error, 'strerror', 'not text')}") from None
    elif url is None:
        where, text = DATABASE, environ.get(DATABASE) or f"sqlite:///{directory / 'dfrs.db'}"
    try:
        parts = make_url(text or "")
    except (ArgumentError, ValueError):
        raise InputError(f"{where}: must be a database's URL, as postgresql+psycopg://user@host/dfrs") from None
    kind = parts.get_backend_name()
    if kind not in {"postgresql", "sqlite"}:
        raise InputError(f"{where}: {quoted(kind)}: must be the URL of a database of PostgreSQL or SQLite")
    if kind == "postgresql":
        require("postgres")
    if where == "--database" and (parts.password is not None or "password" in parts.query):
        raise InputError(f"--database: a password there can be read by everyone; use {DATABASE} or --database-file")
    return text or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    state: Path
    listen: "Address"
    settings: "ControllerSettings"
    certificate: Path | None
    key: Path | None
    hosts: tuple[str, ...]
    submissions_per_s: float | None
    open_metrics: bool
    as_json: bool
    peers: tuple[str, ...] = ()
    agent_socket: int | None = None
    partition: str | None = None
    """Of Slurm, where that runs jobs."""

    @property
    def deciders(self) -> tuple[Sequence[str], str, Mapping[str, float]]:
        """Policies, discovery, and its settings."""
        settings = self.settings
        names = [settings.policy, *([settings.shadow] if settings.shadow else [])]
        return names, settings.discovery, settings.discovery_settings

    def certificates(self) -> "Certificates | None":
        """What TLS needs; None on loopback, unless certificates are given."""
        from dfrs.live.api.certificates import Certificates

        if self.certificate is not None and self.key is not None:
            return Certificates(certificate=self.certificate, key=self.key, authority=None)
        if self.listen.loopback:
            return None
        return self.own_certificates(set() if self.listen.everywhere else {self.listen.host})

    def own_certificates(self, addresses: set[str]) -> "Certificates":
        """Those that are made here, for this machine's names and these addresses."""
        from dfrs.live.api.certificates import own_certificates
        from dfrs.live.home import TLS

        return own_certificates(self.state / TLS, {*machine_names(), *self.hosts} | addresses)

    def agents_come(self) -> "tuple[socket.socket, ssl.SSLContext] | None":
        """Where else agents come, and how they know the controller. Raises InputError."""
        from dfrs.live.api.server import inherited

        if self.agent_socket is None:
            return None
        found = inherited(self.agent_socket)
        return found, self.own_certificates({str(found.getsockname()[0])}).context()


async def _serve(plan: _Plan, controller: "ServedController", doors: _Doors) -> None:
    from dfrs.live.api.routes import ApiSettings, create_app
    from dfrs.live.api.server import bind
    from dfrs.live.api.server import serve as run
    from dfrs.live.home import leave_files
    from dfrs.live.web.files import PAGE

    certificates = plan.certificates()
    tls: ssl.SSLContext | None = None if certificates is None else certificates.context()
    listening, address = bind(plan.listen)
    known_as = plan.hosts[0] if plan.certificate is not None and plan.hosts else None
    url = address.url(tls=tls is not None, host=known_as)
    authority = None if certificates is None else certificates.authority
    elsewhere = address.url(tls=True, host=socket.getfqdn()) if address.everywhere else None
    controller.announce(elsewhere or url)
    also = plan.agents_come()
    near = frozenset() if also is None else frozenset({str(also[0].getsockname()[0])})
    app = create_app(
        controller,
        page=PAGE,
        settings=ApiSettings(submissions_per_s=plan.submissions_per_s, open_metrics=plan.open_metrics, near=near),
        aside=controller.aside,
        agent_door=doors.agents,
        share_door=doors.shares,
    )

    async def started() -> None:
        known = ",".join((url, *plan.peers))
        await leave_files(plan.state, controller, user=_account(), url=known, ca=authority)
        # What is there by now stays, and jobs are no cycles: looking for such all the time makes requests wait.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTED)
        threading.Thread(target=decide_once, args=plan.deciders, daemon=True).start()

    def ready() -> None:
        _tell(plan, url, elsewhere, authority)

    waits = plan.settings.standby
    if waits and not plan.as_json:
        out.print(f"cluster {plan.settings.cluster}: standby at {elsewhere or url}", markup=False, soft_wrap=True)
    await run(controller, app, listening, tls=tls, started=started, ready=ready, also=also, waits=waits)


def decide_once(policies: Sequence[str], discovery: str, settings: Mapping[str, float] = NO_SETTINGS) -> None:
    """Have what dfrs decides with compiled, if it is not: see `dfrs.live.controller.first_use`. Raises InputError.

    Policies that others bring are left alone: what they would do with jobs that are nobody's is not known.
    """
    from dfrs.live.controller.first_use import use_once
    from dfrs.policies.discovery.methods import find_discovery
    from dfrs.policies.names import built_in, find_live_policy

    use_once(map(find_live_policy, filter(built_in, policies)), find_discovery(discovery, **settings))


def _tell(plan: _Plan, url: str, elsewhere: str | None, authority: Path | None) -> None:
    from dfrs.live.client import CLIENT_FILE
    from dfrs.live.home import AGENT_FILE

    if plan.as_json:
        print_json(
            {
                "url": url,
                "url_elsewhere": elsewhere,
                "ca": authority and str(authority),
                "client_file": str(plan.state / CLIENT_FILE),
                "agent_token_file": str(plan.state / AGENT_FILE),
            }
        )
        return
    rows = [
        ("page and API", f"{url}/" + (f"   elsewhere: {elsewhere}/" if elsewhere else "")),
        (
            "policy",
            f"{plan.settings.policy}, discovery {plan.settings.discovery}"
            + (f", in the shadow {plan.settings.shadow}" if plan.settings.shadow else ""),
        ),
        ("your token", f"{plan.state / CLIENT_FILE}   (admin; this account's verbs find it)"),
        ("agents' token", f"{plan.state / AGENT_FILE}"),
        *([("jobs", f"of Slurm's partition {plan.partition}: submit with sbatch")] if plan.partition else []),
        *([("authority", f"{authority}   (give it to users and agents: --ca)")] if authority else []),
    ]
    out.print(f"cluster {plan.settings.cluster} is served", style="bold", markup=False)
    for title, text in rows:
        out.print(f"  {title:14} {text}", markup=False, soft_wrap=True)


def machine_names() -> set[str]:
    """Names and addresses under which this machine is likely to be reached."""
    names = {"localhost", "127.0.0.1", "::1"}
    for name in (socket.gethostname(), socket.getfqdn()):
        if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", name):
            names.add(name)
    names.update(_own_addresses())
    return names


def _own_addresses() -> set[str]:
    """The addresses from which it would speak to others; nothing is sent to find out."""
    found: set[str] = set()
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((far, 9))
                found.add(str(probe.getsockname()[0]))
        except OSError:
            continue
    return found


def _account() -> str:
    """The account's name, or a plain one if that cannot be a user's."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        return "admin"
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", name) else "admin"


def _cluster(name: str) -> str:
    if not 1 <= len(name) <= 63 or has_controls(name):
        raise InputError(f"--name {quoted(name)}: must be 1 to 63 printable characters")
    return name


def _set_up_logs(level: str) -> None:
    from dfrs.live.api.server import quiet_libraries
    from dfrs.live.logs import set_up

    set_up(level)
    quiet_libraries()


VERBS = (Verb(serve),)
