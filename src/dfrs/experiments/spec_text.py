"""A campaign as the text of its file: `read_campaign` gives the same campaign again."""

from typing import Any

import tomli_w

from dfrs.experiments.experiment import Experiment
from dfrs.experiments.planned_runs import Configuration
from dfrs.experiments.spec import FORMAT, Campaign, Study


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
    kind = study.experiment
    items = [_item(kind, entry) for entry in study.entries]
    shared = {
        key: value
        for key, value in items[0].items()
        if key not in {kind.item, "label"} and all(item.get(key) == value for item in items)
    }
    short = [{key: value for key, value in item.items() if key not in shared} for item in items]
    said = [next(iter(item.values())) if len(item) == 1 else item for item in short]
    document: dict[str, Any] = {"name": study.name}
    if study.sample:
        document["sample"] = study.sample
    if study.alone:
        document["alone"] = True
    document[kind.entries] = said
    if shared:
        document["settings"] = shared
    document[kind.sources] = [{"model": s.model} | s.model_dump(exclude_defaults=True) for s in study.sources]
    return document


def _item(kind: Experiment, entry: Configuration) -> dict[str, Any]:
    """Name, label where it is another, and every setting that is not the usual one."""
    name = getattr(entry, kind.item)
    return {kind.item: name} | ({"label": entry.label} if entry.label != name else {}) | dict(kind.said(entry))
