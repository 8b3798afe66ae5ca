"""[Atif2011]: ARRIVE-F, migrations between unequal sub-clusters."""
