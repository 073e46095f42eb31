"""The parts of the page, a folder a section."""
