"""Calls of `virsh`, each with a time limit and errors in one line."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from dfrs.model.errors import DfrsError, InputError

TIMEOUT_S = 30.0


class VirshError(DfrsError):
    """virsh failed, or did not answer in time: the message has its last line. Try the same call by hand."""


@dataclass(frozen=True, slots=True)
class Virsh:
    """One libvirt daemon, by its URI."""

    uri: str
    timeout_s: float = TIMEOUT_S
    command: tuple[str, ...] = ("virsh",)

    def __call__(self, *arguments: str) -> str:
        """What `virsh -c URI ARGUMENTS` prints. Raises VirshError; InputError where there is no virsh."""
        with self.start(*arguments) as child:
            try:
                out, errors = child.communicate(timeout=self.timeout_s)
            except subprocess.TimeoutExpired:
                child.kill()
                raise VirshError(f"{self.uri}: virsh {arguments[0]}: no answer within {self.timeout_s:g} s") from None
            except BaseException:
                child.kill()
                raise
        if child.returncode != 0:
            raise VirshError(f"{self.uri}: virsh {arguments[0]}: {last_line(errors)}")
        return out

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """The call as a running process, out of reach of the terminal's Ctrl-C. Raises InputError without virsh."""
        if shutil.which(self.command[0]) is None:
            raise InputError(f"{self.uri}: needs {self.command[0]}, which is not installed: install libvirt's clients")
        return subprocess.Popen(
            [*self.command, "-c", self.uri, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(os.environ, LC_ALL="C"),
            start_new_session=True,
        )


def last_line(text: str) -> str:
    """The last line that says something, without virsh's `error:`."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("error:").strip() if lines else "failed and did not say why"


def split_uris(text: str) -> Sequence[str]:
    """URIs between commas. Raises InputError where one has no scheme."""
    uris = [uri.strip() for uri in text.split(",") if uri.strip()]
    for uri in uris:
        if "://" not in uri:
            raise InputError(f'--libvirt "{uri}": must be a libvirt URI, as qemu:///system or qemu+ssh://host/system')
    if not uris:
        raise InputError("--libvirt: names no host: must be libvirt URIs, separated by commas")
    return uris
