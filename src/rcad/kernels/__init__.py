"""Kernels of our own: BatchNorm with ReLU, and SGD with clipping; each has a Triton half and a plain one."""
