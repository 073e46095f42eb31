"""What a distance is: value, floor and standard error; and when one exists under heavy tails."""
