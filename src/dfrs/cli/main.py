"""`dfrs`: assembles the verbs, and turns errors into one line and an exit status."""

import os
import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from dfrs.cli.console import err, out, tell_about_compilation
from dfrs.cli.verbs import LazyVerbs
from dfrs.model.errors import DfrsError, InfeasibleError, InputError, ReplacedError
from dfrs.model.text import visible

BAD_INPUT, INFEASIBLE, FAILED, INTERRUPTED = 2, 3, 1, 130

app = typer.Typer(
    name="dfrs",
    cls=LazyVerbs,
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


def main() -> None:
    """Run the command line; never shows a traceback for what the user gave."""
    try:
        status = app(standalone_mode=False)
        # Where it is redirected much may not be written yet, and at exit nobody would catch what fails.
        if sys.stdout is not None:
            sys.stdout.flush()
    except InputError as error:
        _fail(str(error), BAD_INPUT)
    except InfeasibleError as error:
        _fail(str(error), INFEASIBLE)
    except ReplacedError as error:
        _fail(str(error), ReplacedError.status)
    except DfrsError as error:
        _fail(str(error), FAILED)
    except TyperException as error:
        _fail(_one_line(error), BAD_INPUT)
    except ModuleNotFoundError as error:
        from dfrs.cli.extras import missing

        found = missing(error)
        if found is None:
            raise
        _fail(str(found), BAD_INPUT)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe left.
        _discard_output()
        sys.exit(FAILED)
    except OSError as error:
        if isinstance(error.filename, str | bytes | os.PathLike):
            _fail(f"{os.fsdecode(error.filename)}: {error.strerror}", BAD_INPUT)
        # Without a file it is standard output.
        _discard_output()
        _fail(f"cannot write: {error.strerror or error}", FAILED)
    else:
        # Typer turns Ctrl-C inside a verb into this status and says nothing.
        if status == INTERRUPTED:
            _fail("interrupted", INTERRUPTED)
        sys.exit(status if isinstance(status, int) else 0)


def _one_line(error: TyperException) -> str:
    from dfrs.cli.usage import restated

    describe = getattr(error, "format_message", None)
    return restated(error) or " ".join((describe() if describe else str(error)).split())


def _discard_output() -> None:
    """What remains in the buffer of standard output must not raise again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, status: int) -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _discard_output()
    line = visible(" ".join(message.splitlines()))
    err.print(f"dfrs: {line}", markup=False, soft_wrap=True, style="red" if err.is_terminal else None)
    sys.exit(status)


if __name__ == "__main__":
    main()
