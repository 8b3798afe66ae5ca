"""Rules, overcommit, headroom and limits on moves in `dfrs-instance/1`; `dfrs.model.rules` has their meaning."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=200)]
Names = Annotated[list[Name], Field(min_length=1)]
Limit = Annotated[int, Field(ge=1, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Rule(_Document):
    price: Positive | None = None
    name: str = ""


class TogetherDocument(_Rule):
    """Affinity."""

    kind: Literal["together"]
    services: Names
    level: Name = "node"
    each: bool = False


class ApartDocument(_Rule):
    """Anti-affinity."""

    kind: Literal["apart"]
    services: Names
    at_most: Limit = 1
    level: Name = "node"
    each: bool = False


class SpreadDocument(_Rule):
    """Over at least so many domains, at most so many tasks in one, or both."""

    kind: Literal["spread"]
    services: Names
    at_least: Limit | None = None
    at_most: Limit | None = None
    level: Name = "node"
    each: bool = False


class OnlyDocument(_Rule):
    """On these nodes."""

    kind: Literal["only"]
    services: Names
    nodes: Names


class NeverDocument(_Rule):
    """On other nodes."""

    kind: Literal["never"]
    services: Names
    nodes: Names


class FeaturesDocument(_Rule):
    """On nodes with these labels."""

    kind: Literal["features"]
    services: Names
    features: Names


class MaintenanceDocument(_Rule):
    """Nodes to be empty."""

    kind: Literal["maintenance"]
    nodes: Names


class RequiresDocument(_Rule):
    """Only in domains where another group is."""

    kind: Literal["requires"]
    services: Names
    needs: Names
    level: Name = "node"


class LicensedDocument(_Rule):
    """On few nodes."""

    kind: Literal["licensed"]
    services: Names
    at_most: Limit
    level: Name = "node"


class StickyDocument(_Document):
    """What moving costs."""

    kind: Literal["sticky"]
    name: str = ""
    services: Names
    cost: Amount


RuleDocument = Annotated[
    TogetherDocument
    | ApartDocument
    | SpreadDocument
    | OnlyDocument
    | NeverDocument
    | FeaturesDocument
    | MaintenanceDocument
    | RequiresDocument
    | LicensedDocument
    | StickyDocument,
    Field(discriminator="kind"),
]


class OvercommitDocument(_Document):
    """Factor on the capacity of a resource, of all nodes or some; of two that name a node the later counts."""

    resource: Name
    factor: Positive
    nodes: Names = ["*"]


class HeadroomDocument(_Document):
    """How many failures must be survived."""

    failures: Limit = 1
    level: Name = "node"


class MoveLimitsDocument(_Document):
    """How many tasks may move at once, and how fast."""

    at_once: Limit | None = None
    per_node: Limit | None = None
    per_link: Limit | None = None
    link_level: Name | None = None
    bandwidth_bytes_per_s: Positive | None = None
    latency_s: Amount = 0.0


class RulesDocument(_Document):
    """Rules in a file of their own, for a snapshot of a cluster that has none."""

    format: Literal["dfrs-rules/1"]
    rules: list[RuleDocument] = []
    headroom: HeadroomDocument | None = None
    move_limits: MoveLimitsDocument | None = None
