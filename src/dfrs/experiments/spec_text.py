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
    tables = [_table(kind, configuration) for configuration in study.configurations]
    shared = {
        key: value
        for key, value in tables[0].items()
        if key not in {kind.named_by, "label"} and all(table.get(key) == value for table in tables)
    }
    short = [{key: value for key, value in table.items() if key not in shared} for table in tables]
    said = [next(iter(table.values())) if len(table) == 1 else table for table in short]
    document: dict[str, Any] = {"name": study.name}
    if study.sample:
        document["sample"] = study.sample
    if study.alone:
        document["alone"] = True
    document[kind.configurations] = said
    if shared:
        document["settings"] = shared
    document[kind.sources] = [{"model": s.model} | s.model_dump(exclude_defaults=True) for s in study.sources]
    return document


def _table(kind: Experiment, configuration: Configuration) -> dict[str, Any]:
    """Name, label where it is another, and every setting that is not the usual one."""
    name = getattr(configuration, kind.named_by)
    return (
        {kind.named_by: name}
        | ({"label": configuration.label} if configuration.label != name else {})
        | dict(kind.unusual_settings(configuration))
    )
