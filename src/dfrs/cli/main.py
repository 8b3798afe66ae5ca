"""`dfrs`: assembles the verbs, and turns errors into one line and an exit status."""

import os
import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from dfrs.cli.console import err, out, tell_about_compilation
from dfrs.cli.experiments import campaign, reproduce
from dfrs.cli.extras import missing
from dfrs.cli.heterogeneous import farm
from dfrs.cli.live import (
    agent,
    cancel,
    down,
    explain,
    export,
    history,
    logs,
    nodes,
    queue,
    serve,
    show,
    submit,
    token,
    top,
    up,
)
from dfrs.cli.simulate import (
    algorithms,
    allocate,
    bound,
    compare,
    generate,
    plot,
    policies,
    simulate,
    validate,
    workload,
)
from dfrs.model.errors import DfrsError, InfeasibleError, InputError

BAD_INPUT, INFEASIBLE, FAILED, INTERRUPTED = 2, 3, 1, 130

app = typer.Typer(
    name="dfrs",
    help="""[bold]Dynamic Fractional Resource Scheduling[/bold]: share a cluster in fractions,
maximise the minimum yield.

Every service gets a [bold]yield[/bold], the fraction of its needs that it receives.
dfrs maximises the smallest one, and says beside each answer how far from the best possible it is.""",
    epilog="""[bold]Try this[/bold]

    dfrs generate lublin --seed 1 -o t.swf.gz

    dfrs simulate t.swf.gz -p FCFS -p EASY -p 'GreedyPM*/per/OPT=MIN/MVT=600' -o out/runs

    dfrs plot out/runs/EASY

    dfrs generate services --nodes 16 --services 50 --seed 1 -o s.json

    dfrs allocate s.json -a VP_CPSUM,GREEDY,BEST -o s.allocation.json --picture s.png

    dfrs validate s.allocation.json --instance s.json

    dfrs up --detach && dfrs submit --cpu 0.5 --memory 512M -- ./prog && dfrs top""",
    rich_markup_mode="rich",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from dfrs import __version__

        out.print(f"dfrs {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    tell_about_compilation()


LIVE, CLUSTER, ALLOCATE, REPLAY, LOOK, MAKE, MANY = (
    "Run jobs on a live cluster",
    "Keep a live cluster",
    "Place services on nodes",
    "Replay traces under policies",
    "Look and check",
    "Generate workloads",
    "Run many, and repeat published results",
)

app.command("submit", rich_help_panel=LIVE, cls=submit.ScriptCommand, context_settings=submit.SUBMIT)(submit.submit)
app.command("queue", rich_help_panel=LIVE)(queue.queue)
app.command("show", rich_help_panel=LIVE)(show.show)
app.command("explain", rich_help_panel=LIVE)(explain.explain)
app.command("logs", rich_help_panel=LIVE)(logs.logs)
app.command("cancel", rich_help_panel=LIVE)(cancel.cancel)
app.command("hold", rich_help_panel=LIVE)(cancel.hold)
app.command("release", rich_help_panel=LIVE)(cancel.release)
app.command("top", rich_help_panel=LIVE)(top.top)
app.command("history", rich_help_panel=LIVE)(history.history)
app.command("up", rich_help_panel=CLUSTER)(up.up)
app.command("down", rich_help_panel=CLUSTER)(down.down)
app.command("serve", rich_help_panel=CLUSTER)(serve.serve)
app.command("agent", rich_help_panel=CLUSTER)(agent.agent)
app.add_typer(token.app, name="token", rich_help_panel=CLUSTER)
app.command("export", rich_help_panel=LIVE)(export.export)
app.command("nodes", rich_help_panel=CLUSTER)(nodes.nodes)
app.command("drain", rich_help_panel=CLUSTER)(nodes.drain)
app.command("undrain", rich_help_panel=CLUSTER)(nodes.undrain)
app.command("allocate", rich_help_panel=ALLOCATE)(allocate.allocate)
app.command("algorithms", rich_help_panel=ALLOCATE)(algorithms.algorithms)
app.command("simulate", rich_help_panel=REPLAY)(simulate.simulate)
app.add_typer(farm.app, name="farm", rich_help_panel=REPLAY)
app.command("policies", rich_help_panel=REPLAY)(policies.policies)
app.command("bound", rich_help_panel=REPLAY)(bound.bound)
app.command("compare", rich_help_panel=REPLAY)(compare.compare)
app.command("plot", rich_help_panel=LOOK)(plot.plot)
app.command("validate", rich_help_panel=LOOK)(validate.validate)
app.add_typer(generate.app, name="generate", rich_help_panel=MAKE)
app.add_typer(workload.app, name="workload", rich_help_panel=MAKE)
app.add_typer(campaign.app, name="campaign", rich_help_panel=MANY)
app.command("reproduce", rich_help_panel=MANY)(reproduce.reproduce)


def main() -> None:
    """Run the command line; never shows a traceback for what the user gave."""
    try:
        status = app(standalone_mode=False)
    except InputError as error:
        _fail(str(error), BAD_INPUT)
    except InfeasibleError as error:
        _fail(str(error), INFEASIBLE)
    except DfrsError as error:
        _fail(str(error), FAILED)
    except TyperException as error:
        _fail(_one_line(error), BAD_INPUT)
    except ModuleNotFoundError as error:
        found = missing(error)
        if found is None:
            raise
        _fail(str(found), BAD_INPUT)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe left; what remains in the buffer must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except OSError as error:
        # Files are the verbs' own; what is left is standard output, which must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"cannot write: {error.strerror or error}", FAILED)
    else:
        # Typer turns Ctrl-C inside a verb into this status and says nothing.
        if status == INTERRUPTED:
            _fail("interrupted", INTERRUPTED)
        sys.exit(status if isinstance(status, int) else 0)


def _one_line(error: TyperException) -> str:
    describe = getattr(error, "format_message", None)
    return " ".join((describe() if describe else str(error)).split())


def _fail(message: str, status: int) -> None:
    line = " ".join(message.splitlines())
    err.print(f"dfrs: {line}", markup=False, soft_wrap=True, style="red" if err.is_terminal else None)
    sys.exit(status)


if __name__ == "__main__":
    main()
