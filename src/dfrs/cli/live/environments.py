"""What a program finds around it on its node: a Python virtual environment, modules, the files of a container image."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from dfrs.cli.quantities import quoted
from dfrs.model.errors import InputError

# A login shell of the node knows what `module` is. It may set another PATH: the job's own comes after what modules add.
_LOGIN = 'exec /bin/bash -l -c "$0" dfrs-modules "$PATH" "$@"'
_MODULES = (
    'own=$1 n=$2; shift 2; module load "${@:1:n}" || exit 1; shift "$n"; '
    'PATH=${VIRTUAL_ENV:+$VIRTUAL_ENV/bin:}$PATH:$own exec "$@"'
)
_IMAGE = (
    'for tool in apptainer singularity; do command -v $tool >/dev/null && exec $tool exec "$0" "$@"; done; '
    'echo "dfrs: --image: no apptainer and no singularity on $(uname -n)" >&2; exit 127'
)


def in_environment(command: Sequence[str], modules: Sequence[str], image: str | None) -> tuple[str, ...]:
    """What runs a command in an image, with modules loaded before that, as the nodes have them. Raises InputError."""
    made = tuple(command)
    if image is not None:
        made = ("/bin/sh", "-c", _IMAGE, _image(image), *made)
    if modules:
        for module in modules:
            if not module or module.startswith("-") or not module.isprintable():
                raise InputError(f"--module: {quoted(module)}: must be the name of a module, as gcc/12")
        made = ("/bin/sh", "-c", _LOGIN, _MODULES, str(len(modules)), *modules, *made)
    return made


def _image(text: str) -> str:
    """A file here by its whole path, as the job may run elsewhere; all else as the tool of the node reads it."""
    if not text or text.startswith("-"):
        raise InputError(f"--image: {quoted(text)}: must be a file, or an image as docker://debian:12")
    is_path = os.path.isfile(text) or ("/" in text and os.path.isdir(text))
    return os.path.abspath(text) if is_path else text


def in_venv(venv: Path | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables of a job whose programs come from a virtual environment first."""
    if venv is None:
        return dict(environment)
    place = os.path.abspath(venv)
    path = environment.get("PATH", os.defpath)
    return {**environment, "VIRTUAL_ENV": place, "PATH": f"{place}/bin:{path}"}
