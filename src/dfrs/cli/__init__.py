"""The command line: one file a verb. Standard output is the answer; everything else goes to standard error."""
