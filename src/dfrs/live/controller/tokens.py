"""Who may ask for what: tokens, of which only a hash is kept."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Any

from dfrs.live.controller.admissions import Admission, admit
from dfrs.live.controller.tables import BINDING
from dfrs.live.errors import NotAdmittedError, NotFoundError
from dfrs.live.protocol.observed import NodeFacts
from dfrs.live.protocol.ports import Facts
from dfrs.live.protocol.resources import NewToken, Role, TokenInfo, TokenRequest

PREFIX = "dfrs_"
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Who:
    """An identity."""

    user: str
    role: Role


class Tokens:
    """All tokens, by the hash of their secrets."""

    def __init__(self) -> None:
        self._by_hash: dict[str, TokenInfo] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._by_hash)

    def add(self, hash_: str, info: TokenInfo) -> None:
        """Take in one that is durable."""
        self._by_hash[hash_] = info
        self._next = max(self._next, info.id + 1)

    def make(self, request: TokenRequest, now: float) -> tuple[NewToken, Mapping[str, Any]]:
        """A new one, and its row; it counts from `add` on."""
        secret = PREFIX + token_urlsafe(32)
        made = NewToken(
            id=self._next,
            user=request.user,
            role=request.role,
            created_at=now,
            expires_at=now + request.days * DAY_S,
            revoked=False,
            local=request.local if request.role == "agent" else None,
            token=secret,
        )
        self._next += 1
        row = {
            "id": made.id,
            "hash": hashed(secret),
            "owner": made.user,
            "role": made.role,
            "created_at": made.created_at,
            "expires_at": made.expires_at,
            "revoked": False,
            "local": made.local,
        }
        return made, row

    def check(self, token: int) -> TokenInfo:
        """The one of that number. Raises NotFoundError."""
        for info in self._by_hash.values():
            if info.id == token:
                return info
        raise NotFoundError(f"token {token}: there is no such token")

    def bind(self, bound: TokenInfo) -> None:
        """It admits the node that `bound` names from now on."""
        for hash_, info in self._by_hash.items():
            if info.id == bound.id:
                self._by_hash[hash_] = info.model_copy(update={name: getattr(bound, name) for name in BINDING})

    def revoke(self, token: int) -> None:
        """It counts no more."""
        for hash_, info in self._by_hash.items():
            if info.id == token:
                self._by_hash[hash_] = info.model_copy(update={"revoked": True})

    def all(self) -> Sequence[TokenInfo]:
        """By number."""
        return sorted(self._by_hash.values(), key=lambda info: info.id)

    def find(self, secret: str, now: float) -> TokenInfo | None:
        """The one with that secret, if it is in force.

        What is looked up is a hash, so the time it takes tells nothing of the secrets there are.
        """
        info = self._by_hash.get(hashed(secret))
        return None if info is None or not _in_force(info, now) else info

    def identify(self, secret: str, now: float) -> Who | None:
        """Whose it is."""
        info = self.find(secret, now)
        return None if info is None else Who(info.user, info.role)

    def admit(self, secret: str, facts: Facts, known: NodeFacts | None, now: float, *, here: bool) -> Admission[Facts]:
        """As `admissions.admit`, by the tokens in force. Raises NotAdmittedError."""
        token = self.find(secret, now)
        if token is None or token.role != "agent":
            raise NotAdmittedError("token: expired or revoked")
        others = (info for info in self._by_hash.values() if _in_force(info, now))
        return admit(token, others, facts, known, here=here)


def _in_force(info: TokenInfo, now: float) -> bool:
    return not info.revoked and now < info.expires_at


def hashed(secret: str) -> str:
    """As it is stored."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
