"""Nets as graphs of ops, and affine ops as maps of means, variances and covariances."""
