"""What `dfrs rebalance` is made of: where snapshots come from, how results look, how plans are carried out."""
