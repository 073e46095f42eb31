"""Low-rank plus diagonal covariances, for nets whose covariance matrices do not fit in memory."""
