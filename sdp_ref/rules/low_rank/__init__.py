"""Covariances of low rank with a diagonal, for nets whose covariance matrices do not fit."""
