#!/bin/sh
# Called by CRIU, for each stage of a restore. Before the restored processes run, their image is spent.
[ "$CRTOOLS_SCRIPT_ACTION" != pre-resume ] || mv "$DFRS_TASK/image" "$DFRS_TASK/spent"
