"""A net as a graph of ops, and affine ops as maps of means, variances and covariances."""
