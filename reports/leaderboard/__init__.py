"""The leaderboard of rules that were entered for a problem set, by use of the predictions."""
