"""Networks: pixels in [0, 1] go in, Normalize is layer zero, `features()` and `head()` come apart."""
