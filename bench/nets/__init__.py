"""The measured nets: architectures, recipes, training and storage."""
