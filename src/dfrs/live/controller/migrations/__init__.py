"""Revisions of the database's tables.

Before you add one, write a database of the present one for the tests: `python -m tests.old_databases`. A migration that
drops stored states is undone where events are pruned, so convert them.
"""
