"""sdp-bench."""
