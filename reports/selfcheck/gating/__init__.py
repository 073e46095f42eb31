"""What gate and kit are tried on: faults made in a right rule, and changed laws of sampling rules."""
