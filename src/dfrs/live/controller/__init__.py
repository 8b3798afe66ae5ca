"""The controller: a loop that records, decides, records again, and only then tells the nodes."""
