"""The controller over HTTP: REST, agents' connections, server-sent events, metrics and the page."""
