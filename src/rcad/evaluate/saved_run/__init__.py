"""A finished run looked at again: calibration, attacks, corruptions, data from elsewhere; one record per suite."""
