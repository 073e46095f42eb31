"""Test cases of gate and kit: faults in a correct rule, and changed distributions of sampling rules."""
