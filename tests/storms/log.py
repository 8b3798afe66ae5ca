"""What the database of a controller has recorded."""

import json

from sqlalchemy import create_engine, text


def read_log(path):
    """(time, event, digest) of all that the database in the directory `path` has recorded."""
    engine = create_engine(f"sqlite:///{path}/live.db")
    with engine.connect() as connection:
        rows = connection.execute(text("select time_s, event, digest from events order by sequence")).all()
    engine.dispose()
    return [(row.time_s, json.loads(row.event), row.digest) for row in rows]
