"""What the ops of ATen are to the rules: a module each."""
