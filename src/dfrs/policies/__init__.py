"""Who runs where and with how much CPU, now: on-line policies, found by name in `registry`."""
