"""How verbs show what they have found."""
