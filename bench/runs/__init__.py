"""From experiments to groups of work, and through executors to measurements."""
