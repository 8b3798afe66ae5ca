"""Profiles of real MPI programs, and calibration of real hardware ([Atif2011] sections 5.2 to 5.4, 6 and 7.3.1)."""
