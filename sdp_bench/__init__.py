"""Command line of sdp-bench; reaches the rooms below only when a command needs them."""
