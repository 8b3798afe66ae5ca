"""The JSON documents users write and get, as pydantic models: `dfrs-instance/1` and `dfrs-allocation/1`.

What is checked here is what a single document can show; messages name the field, its value and the rule.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from dfrs.model.resources import Kind
from dfrs.workloads.rule_documents import HeadroomDocument, MoveLimitsDocument, OvercommitDocument, RuleDocument

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ResourceDocument(_Document):
    """One resource; `bytes` is the size of the reference node's, for budgets in bytes."""

    name: Name
    kind: Kind
    bytes: Amount | None = None


class NodeDocument(_Document):
    """One node; resources not named have capacity 1. Labels name its failure domains and features."""

    name: Name
    capacity: dict[str, Amount] = {}
    labels: dict[Name, Name] = {}


class ComponentDocument(_Document):
    """One part of a service: `factor` times the service's fluid needs, and what `needs` says otherwise."""

    name: Name
    tasks: Count = 1
    factor: Amount = 1.0
    needs: dict[str, Amount] = {}
    move_cost: Amount | None = None


class ServiceDocument(_Document):
    """One service: its tasks' needs, and optionally components; `kinds` overrides resources' kinds."""

    name: Name
    tasks: Count = 1
    needs: dict[str, Amount] = {}
    minimum_yield: Share = 0.0
    kinds: dict[str, Kind] = {}
    components: list[ComponentDocument] = []
    move_cost: Amount = 1.0


class InstanceDocument(_Document):
    """A whole problem."""

    format: Literal["dfrs-instance/1"]
    name: str = ""
    resources: Annotated[list[ResourceDocument], Field(min_length=1, max_length=64)]
    nodes: Count | Annotated[list[NodeDocument], Field(min_length=1)]
    services: Annotated[list[ServiceDocument], Field(min_length=1)]
    rules: list[RuleDocument] = []
    overcommit: list[OvercommitDocument] = []
    headroom: HeadroomDocument | None = None
    move_limits: MoveLimitsDocument | None = None


class AllocationDocument(BaseModel):
    """The part of an allocation that is read back: where each service's tasks run."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    format: Literal["dfrs-allocation/1"]
    instance: str | None = None
    nodes: Count | None = None
    algorithm: str = ""
    bound: Share = 1.0
    placement: dict[str, list[str]] | None
    scaled_yields: dict[str, Share] | None = None
