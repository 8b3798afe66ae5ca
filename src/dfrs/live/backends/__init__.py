"""Who runs jobs for the controller: one folder for each, behind the port `controller/backend.py`."""
