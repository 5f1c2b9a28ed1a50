"""Search over a method's numbers by the held-out split alone, with the same budget for every method."""
