"""What the gate compares with its baseline, a question a module."""
