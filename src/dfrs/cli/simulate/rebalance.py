"""`dfrs rebalance`: from a snapshot of a cluster to a better placement, as an ordered plan that can be carried out."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dfrs.cli.console import err, out, print_json
from dfrs.cli.extras import require
from dfrs.cli.live.cluster import Authority, Server, TokenFile, connected
from dfrs.cli.quantities import parse_bytes, parse_seconds
from dfrs.cli.refusals import refuse_beside, refuse_same
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError
from dfrs.model.writing import require_writable, write_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from dfrs.cli.rebalancing.search import Search
    from dfrs.cli.rebalancing.sources import Source
    from dfrs.placement.budget import Budget
    from dfrs.rebalancing.solve import Rebalancing
    from dfrs.rebalancing.virsh_mover import VirshMover
    from dfrs.rebalancing.watch import WatchSettings
    from dfrs.workloads.clusters.state import ClusterState

NO_SOLUTION = 3

Need = Literal["used", "allocated"]
Format = Literal["table", "json", "virsh", "proxmox", "openstack"]

SNAPSHOT, BUDGET, SHOW, DO, WATCH = "The cluster", "How much may move, and how", "What to show", "Do it", "Watch it"


def rebalance(
    snapshot: Annotated[
        list[Path] | None,
        typer.Argument(help="Files: dfrs-cluster/1, CSV, Proxmox or OpenStack JSON.", show_default=False),
    ] = None,
    libvirt: Annotated[
        str | None, typer.Option(help="Ask these libvirt hosts: URIs with commas between.", rich_help_panel=SNAPSHOT)
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Ask a running dfrs cluster.", rich_help_panel=SNAPSHOT)] = False,
    need: Annotated[
        Need, typer.Option(help="CPU that a machine needs: what it uses, or its CPUs.", rich_help_panel=SNAPSHOT)
    ] = "used",
    margin: Annotated[
        float | None,
        typer.Option(help="Percent on top of what is used.", rich_help_panel=SNAPSHOT, min=0.0, show_default="20"),
    ] = None,
    sample: Annotated[str, typer.Option(help="How long libvirt hosts are measured.", rich_help_panel=SNAPSHOT)] = "2s",
    rules: Annotated[Path | None, typer.Option(help="File of rules, dfrs-rules/1.", rich_help_panel=SNAPSHOT)] = None,
    maintenance: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="Empty this host. Repeatable.", rich_help_panel=SNAPSHOT)
    ] = None,
    budget_moves: Annotated[
        float | None, typer.Option(help="Most machines that may move.", rich_help_panel=BUDGET, min=0.0)
    ] = None,
    budget_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most memory that may be copied.", rich_help_panel=BUDGET)
    ] = None,
    budget_cost: Annotated[
        float | None, typer.Option(help="Most cost that moves may have.", rich_help_panel=BUDGET, min=0.0)
    ] = None,
    budget_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Most time of all moves added up.", rich_help_panel=BUDGET)
    ] = None,
    bandwidth: Annotated[
        str, typer.Option(metavar="SIZE", help="Copied in a second by one move.", rich_help_panel=BUDGET)
    ] = "1G",
    at_once: Annotated[int | None, typer.Option(help="Most moves at once.", rich_help_panel=BUDGET, min=1)] = None,
    per_host: Annotated[
        int | None, typer.Option(help="Most moves at once from or to a host.", rich_help_panel=BUDGET, min=1)
    ] = 2,
    time_limit: Annotated[float, typer.Option(help="Seconds for the search.", rich_help_panel=BUDGET)] = 2.0,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of search instead: repeats to the bit.", rich_help_panel=BUDGET, min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed where chance plays.", rich_help_panel=BUDGET, min=0)] = 0,
    form: Annotated[
        Format, typer.Option("--format", help="A table, JSON, or commands of a tool.", rich_help_panel=SHOW)
    ] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.", rich_help_panel=SHOW)] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw before and after: .png, .svg or .pdf.", rich_help_panel=SHOW)
    ] = None,
    save_plan: Annotated[Path | None, typer.Option(help="Write the plan, dfrs-plan/1.", rich_help_panel=SHOW)] = None,
    apply: Annotated[
        bool | None,
        typer.Option(
            "--apply/--dry-run", help="Carry the plan out (--libvirt only).", rich_help_panel=DO, show_default="dry-run"
        ),
    ] = None,
    shares: Annotated[
        bool,
        typer.Option("--shares", help="With --apply: then give CPU shares in proportion to needs.", rich_help_panel=DO),
    ] = False,
    plan: Annotated[
        Path | None, typer.Option(help="Carry this saved plan out, or the rest of it, at once.", rich_help_panel=DO)
    ] = None,
    migrate_option: Annotated[
        list[str] | None,
        typer.Option(help="For virsh migrate, instead of --live; {host}: the target.", rich_help_panel=DO),
    ] = None,
    move_timeout: Annotated[str, typer.Option(help="A migration that lasts longer failed.", rich_help_panel=DO)] = "1h",
    watch: Annotated[
        str | None, typer.Option(metavar="TIME", help="Look again after this time, and again.", rich_help_panel=WATCH)
    ] = None,
    times: Annotated[int | None, typer.Option(help="Look so often.", rich_help_panel=WATCH, min=1)] = None,
    least_gain: Annotated[
        float, typer.Option(help="Minimum yield that a change must gain.", rich_help_panel=WATCH)
    ] = 0.05,
    price: Annotated[float, typer.Option(help="And for each of its moves.", rich_help_panel=WATCH)] = 0.01,
    hold_off: Annotated[str, typer.Option(help="A machine that moved stays so long.", rich_help_panel=WATCH)] = "1h",
    window: Annotated[int, typer.Option(help="Samples of demand that count.", rich_help_panel=WATCH, min=1)] = 6,
    percentile: Annotated[
        float, typer.Option(help="Of them, what is needed.", rich_help_panel=WATCH, min=0, max=100)
    ] = 90.0,
    server: Server = None,
    token_file: TokenFile = None,
    ca: Authority = None,
) -> None:
    """Rebalance a running cluster: which machines should move where, in which order, and how good that is.

    Reads a snapshot, searches for the placement with the highest minimum yield within the budget, and shows the moves
    in an order in which each fits. Nothing is moved without --apply or --plan. Exit status 1 if the plan leaves
    machines behind or was not carried out to its end, 3 if no feasible placement was found.

    Examples:

        dfrs rebalance hosts.csv machines.csv --budget-moves 3

        dfrs rebalance proxmox.json --maintenance pve2 --format proxmox

        dfrs rebalance --libvirt qemu+ssh://h1/system,qemu+ssh://h2/system --budget-bytes 64G --apply
    """
    from dfrs.cli.rebalancing.search import Search
    from dfrs.cli.rebalancing.sources import Source
    from dfrs.rebalancing.watch import WatchSettings
    from dfrs.workloads.clusters.state import NeedRule

    shown: Format = "json" if as_json else form
    _check(bool(apply), libvirt, plan, watch, shown, picture, save_plan)
    refuse_same(save_plan, *(snapshot or ()), rules)
    written = {"--picture": picture is not None, "--save-plan": save_plan is not None}
    if watch is not None:
        refuse_beside("--watch", written | {"--plan": plan is not None})
    if plan is not None:
        limits = {"moves": budget_moves, "bytes": budget_bytes, "cost": budget_cost, "time": budget_time}
        budgets = {f"--budget-{unit}": most is not None for unit, most in limits.items()}
        beside = {"--dry-run": apply is False, "--shares": shares} | budgets | written
        refuse_beside("--plan", beside, "carries out what was planned before")
    elif shares and not apply:
        raise InputError("--shares: goes with --apply")
    if live:
        refuse_beside("--live", {"--margin": margin is not None}, "takes needs as the cluster estimates them")
    source = Source(
        files=snapshot or (),
        libvirt=libvirt,
        sample_s=parse_seconds(sample, "--sample"),
        connect=functools.partial(connected, server, token_file, ca) if live else None,
        need=NeedRule(by=need) if margin is None else NeedRule(by=need, margin=margin / 100.0),
        rules=rules,
        maintenance=maintenance or (),
    )
    search = Search(
        budget=_budget(budget_moves, budget_bytes, budget_cost, budget_time, bandwidth),
        at_once=at_once,
        per_host=per_host,
        time_limit_s=time_limit,
        rounds=rounds,
        seed=seed,
    )
    mover_of = functools.partial(_mover, migrate_option, move_timeout)
    if watch is not None:
        settings = WatchSettings(
            window=window,
            percentile=percentile,
            least_gain=least_gain,
            price=price,
            hold_off_s=parse_seconds(hold_off, "--hold-off"),
            budget=search.budget,
        )
        every_s = parse_seconds(watch, "--watch")
        _watch(source, search, settings, mover_of if apply else None, every_s, times, shown, shares)
        return
    state = source.read()
    if shown not in {"table", "json"}:
        _refuse_services(state, shown)
    if plan is not None:
        _finish(state, plan, mover_of(state), shown)
        return
    found = search.run(state)
    write = functools.partial(_write, state, found, save_plan, picture)
    _show(state, found, search.budget, shown, mover_of(state) if apply else None, shares, migrate_option or (), write)


def _check(
    apply: bool,
    libvirt: str | None,
    plan: Path | None,
    watch: str | None,
    shown: Format,
    picture: Path | None,
    save_plan: Path | None,
) -> None:
    """Raise InputError for options that do not go together, before anything is read."""
    if (apply or plan is not None) and libvirt is None:
        raise InputError("--apply and --plan: only libvirt hosts can be told to move: give them with --libvirt")
    for option, is_given in {"--apply": apply, "--plan": plan is not None, "--watch": watch is not None}.items():
        if is_given and shown not in {"table", "json"}:
            raise InputError(f"{option}: goes with --format table or json, not {shown}")
    for path in (picture, save_plan):
        if path is not None:
            require_writable(path)
    if picture is not None:
        if picture.suffix.lower() not in {".png", ".svg", ".pdf"}:
            raise InputError(f"{picture}: the ending must be .png or .svg or .pdf")
        require("plot")


def _refuse_services(state: "ClusterState", shown: Format) -> None:
    """Raise InputError for a service of several tasks: tools know machines, each by its own name."""
    tasks = state.instance.tasks_per_service.tolist()
    for name, count in zip(state.instance.services, tasks, strict=True):
        if count > 1:
            raise InputError(
                f'--format {shown}: service "{name}" has {count} tasks: must be machines, a service of one task each'
            )


def _budget(moves: float | None, size: str | None, cost: float | None, time: str | None, bandwidth: str) -> "Budget":
    from dfrs.placement.budget import Budget

    speed = float(parse_bytes(bandwidth.removesuffix("/s"), "--bandwidth"))
    return Budget(
        moves=moves,
        bytes=None if size is None else float(parse_bytes(size, "--budget-bytes")),
        cost=cost,
        seconds=None if time is None else parse_seconds(time, "--budget-time"),
        bandwidth_bytes_per_s=speed,
    )


def _mover(options: list[str] | None, timeout: str, state: "ClusterState") -> "VirshMover":
    from dfrs.rebalancing.virsh_mover import OPTIONS, VirshMover
    from dfrs.workloads.clusters.virsh import Virsh

    timeout_s = parse_seconds(timeout, "--move-timeout")
    hosts = {host.name: Virsh(host.address) for host in state.hosts}
    return VirshMover(hosts=hosts, options=tuple(options) if options else OPTIONS, timeout_s=timeout_s)


def _watch(
    source: "Source",
    search: "Search",
    settings: "WatchSettings",
    mover: "Callable[[ClusterState], VirshMover] | None",
    every_s: float,
    times: int | None,
    shown: Format,
    shares: bool,
) -> None:
    """Look again and again; act where there is a mover."""
    from dfrs.cli.rebalancing.running import Watch
    from dfrs.rebalancing.watch import Watcher

    Watch(
        read=source.read,
        watcher=Watcher(settings, search),
        budget=search.budget,
        every_s=every_s,
        times=times,
        mover=mover,
        as_json=shown == "json",
        shares=shares,
    ).run()


def _write(state: "ClusterState", found: "Rebalancing", save_plan: Path | None, picture: Path | None) -> None:
    if found.plan is None:
        return
    if save_plan is not None:
        import json

        from dfrs.placement.plan_document import plan_document

        write_text(save_plan, json.dumps(plan_document(found.plan, state.instance), indent=1) + "\n")
        err.print(f"{save_plan}: plan", markup=False, style="dim")
    if picture is not None:
        from dfrs.report.rebalancing import draw_rebalancing

        ended = sorted(found.plan.steps, key=lambda move: move.end_s)
        way = [found.plan.minimum_yield_before, *(move.minimum_yield_after for move in ended)]
        title = f"{found.moves} of {len(state.instance.need)} machines move"
        bound = found.outcome.bound
        draw_rebalancing(state.instance, state.present, found.plan.final, way, bound, title, picture)
        err.print(f"{picture}: picture", markup=False, style="dim")


def _show(
    state: "ClusterState",
    found: "Rebalancing",
    budget: "Budget",
    shown: Format,
    mover: "VirshMover | None",
    shares: bool,
    options: "list[str] | tuple[str, ...]",
    write: "Callable[[], None]",
) -> None:
    """Show the result, `write` it, and carry it out where there is a mover.

    What cannot be written has then been shown, and the other way round. A plan is written before anything moves, as
    --plan may go on with it.
    """
    from dfrs.cli.rebalancing.running import apply_moves, raise_for, tell_left, told_anyhow
    from dfrs.cli.rebalancing.view import left_out, rebalancing_document, show_execution, show_rebalancing, why_none
    from dfrs.rebalancing.commands import command_lines
    from dfrs.rebalancing.solve import cpu_shares, migrations

    moves = [] if found.plan is None else migrations(state.instance, found.plan)
    try:
        if shown == "table":
            show_rebalancing(state, found, budget)
        elif shown != "json" and found.plan is not None:
            left = left_out(state, found)
            for line in command_lines(moves, state, shown, options, left):
                out.print(line, markup=False, soft_wrap=True)
            tell_left(left)
        elif shown == "json" and mover is None:
            print_json(rebalancing_document(state, found, budget, None))
    finally:
        write()
    execution = None
    if mover is not None and found.plan is not None:
        execution = apply_moves(moves, mover, quiet=shown == "json")
    with told_anyhow(execution):
        if shown == "table" and execution is not None:
            show_execution(execution)
        if shown == "json" and mover is not None:
            print_json(rebalancing_document(state, found, budget, execution))
    if shares and mover is not None and execution is not None and execution.complete:
        # What was moved is told before: a host that does not answer now must not hide it.
        mover.set_shares(cpu_shares(state.instance, found))
    if found.plan is None:
        err.print(f"dfrs: {why_none(state, found)}", markup=False, soft_wrap=True)
        raise typer.Exit(NO_SOLUTION)
    raise_for(found.plan, execution)


def _finish(state: "ClusterState", path: Path, mover: "VirshMover", shown: Format) -> None:
    """Carry out what is left of a saved plan."""
    from dfrs.cli.rebalancing.running import apply_moves, raise_for, tell_left, told_anyhow
    from dfrs.cli.rebalancing.view import execution_document, show_execution
    from dfrs.placement.plan_document import read_plan
    from dfrs.rebalancing.solve import migrations

    plan = read_plan(path, state.instance)
    execution = apply_moves(migrations(state.instance, plan), mover, quiet=shown == "json")
    with told_anyhow(execution):
        if shown == "json":
            print_json(execution_document(execution))
        else:
            show_execution(execution)
    tell_left([f"not kept: {line}" for line in plan.problems])
    raise_for(plan, execution)


VERBS = (Verb(rebalance),)
