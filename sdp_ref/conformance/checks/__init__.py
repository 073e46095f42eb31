"""The questions that the kit asks of a rule, a family a module."""
