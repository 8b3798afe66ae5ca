"""A campaign as the text of its file: `read_campaign` gives the same campaign again."""

from dataclasses import fields
from typing import Any

import tomli_w

from dfrs.experiments.kinds import farm, farm_random, needs, offline, online
from dfrs.experiments.spec import FORMAT, Campaign, Entry, Study
from dfrs.placement.registry import Options

_WORDS = {
    "online": ("workloads", "policies"), "offline": ("instances", "algorithms"), "needs": ("scenes", "methods"),
    "farm": ("streams", "policies"), "hetero": ("farms", "policies"),
}  # fmt: skip


def campaign_toml(campaign: Campaign) -> str:
    """The file that says the campaign."""
    document: dict[str, Any] = {"format": FORMAT, "name": campaign.name}
    if campaign.description:
        document["description"] = campaign.description
    if campaign.keep_runs:
        document["keep_runs"] = True
    if report := campaign.report.model_dump(exclude_defaults=True):
        document["report"] = report
    document["studies"] = [_study_document(study) for study in campaign.studies]
    return tomli_w.dumps(document)


def _study_document(study: Study) -> dict[str, Any]:
    items = [_item(entry) for entry in study.entries]
    named = {"policy", "algorithm", "method", "label"}
    shared = {
        key: value
        for key, value in items[0].items()
        if key not in named and all(item.get(key) == value for item in items)
    }
    short = [{key: value for key, value in item.items() if key not in shared} for item in items]
    said = [next(iter(item.values())) if len(item) == 1 else item for item in short]
    on, under = _WORDS[study.kind.name]
    document: dict[str, Any] = {"name": study.name}
    if study.sample:
        document["sample"] = study.sample
    if study.alone:
        document["alone"] = True
    document[under] = said
    if shared:
        document["settings"] = shared
    document[on] = [{"model": s.model} | s.model_dump(exclude_defaults=True) for s in study.sources]
    return document


def _item(entry: Entry) -> dict[str, Any]:
    """Name, label where it is another, and every setting that is not the usual one."""
    if isinstance(entry, online.Entry):
        named = {"policy": entry.policy}
        usual = online.Entry(label="", policy="")
        own = {f.name: getattr(entry, f.name) for f in fields(entry) if f.name not in {"label", "policy"}}
        said = {name: value for name, value in own.items() if value != getattr(usual, name)}
    elif isinstance(entry, farm.Entry):
        named, said = {"policy": entry.policy}, {}
    elif isinstance(entry, farm_random.Entry):
        named = {"policy": entry.policy}
        said = {} if entry.resume_s == farm_random.RESUME_S else {"resume_s": entry.resume_s}
    elif isinstance(entry, needs.Entry):
        named = {"method": entry.method}
        usual = needs.Entry(label="", method="")
        own = {f.name: getattr(entry, f.name) for f in fields(entry) if f.name not in {"label", "method"}}
        said = {name: value for name, value in own.items() if value != getattr(usual, name)}
    else:
        named = {"algorithm": entry.algorithm}
        own = {name: getattr(entry.options, name) for name in offline.OPTIONS}
        said = {name: value for name, value in own.items() if value != getattr(Options(), name)}
        if entry.second_phase != "none":
            said["second_phase"] = entry.second_phase
    name = next(iter(named.values()))
    return named | ({"label": entry.label} if entry.label != name else {}) | said
