"""Live migration by `virsh migrate`."""

import subprocess
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dfrs.rebalancing.mover import Migration, MigrationError
from dfrs.workloads.clusters.virsh import Virsh, VirshError, last_line

OPTIONS = ("--live",)
KEPT = ("--persistent", "--undefinesource")
"""A persistent domain keeps being so where it goes, and is not left defined where it was."""
TIMEOUT_S = 3600.0


def migrate_options(options: Sequence[str], target: str, *, persistent: bool) -> list[str]:
    """What `virsh migrate` is told of a move to `target`, whose name {host} in `options` stands for."""
    given = [option.replace("{host}", target) for option in options]
    return given + [option for option in KEPT if persistent and option not in given]


@dataclass(frozen=True, slots=True, kw_only=True)
class VirshMover:
    """Moves domains between libvirt hosts, named as the snapshot names them.

    `options` go to `virsh migrate`; {host} in them is the target's name. With `--p2p` among them the source's daemon
    connects to the target, by the target's URI as given here; otherwise virsh connects to both.
    """

    hosts: Mapping[str, Virsh]
    options: Sequence[str] = OPTIONS
    timeout_s: float = TIMEOUT_S

    def where(self, hosts: Collection[str] | None = None) -> Mapping[str, str]:
        """The host of each active domain on `hosts`, by default on all. Raises VirshError."""
        asked = self.hosts if hosts is None else {name: self.hosts[name] for name in hosts}
        with ThreadPoolExecutor(max_workers=max(1, len(asked))) as pool:
            lists = pool.map(_active, asked.values())
            found = dict(zip(asked, lists, strict=True))
        return {name.strip(): host for host, text in found.items() for name in text.splitlines() if name.strip()}

    def move(self, move: Migration, /) -> None:
        """Migrate a domain and wait for it. Raises MigrationError."""
        source, target = self.hosts[move.source], self.hosts[move.target]
        options = migrate_options(self.options, move.target, persistent=self._persistent(source, move.machine))
        with source.start("migrate", *options, move.machine, target.uri) as child:
            try:
                _, errors = child.communicate(timeout=self.timeout_s)
            except subprocess.TimeoutExpired:
                self.abort(move)
                _, errors = child.communicate()
                raise MigrationError(f"not done within {self.timeout_s:g} s: {last_line(errors)}") from None
        if child.returncode != 0:
            raise MigrationError(last_line(errors))

    def abort(self, move: Migration, /) -> None:
        """Abort the migration of a domain: it goes on where it was."""
        try:
            self.hosts[move.source]("domjobabort", move.machine)
        except VirshError:
            # It ended in this moment, or its host is gone; who waits for it learns which.
            return

    def set_shares(self, shares: Mapping[str, int]) -> None:
        """Give domains weights in the sharing of their host's CPU. Raises VirshError.

        Of domains that are on none of the hosts any more nothing is said.
        """
        here = self.where()
        for name, weight in shares.items():
            if name in here:
                self.hosts[here[name]]("schedinfo", name, "--live", "--set", f"cpu_shares={weight}")

    @staticmethod
    def _persistent(source: Virsh, machine: str) -> bool:
        lines = source("dominfo", machine).splitlines()
        return any(line.replace(" ", "") == "Persistent:yes" for line in lines)


def _active(virsh: Virsh) -> str:
    return virsh("list", "--name")
