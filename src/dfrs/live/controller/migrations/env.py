"""Alembic's entry: migrates over the connection that it is given."""

from alembic import context

from dfrs.live.controller.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
