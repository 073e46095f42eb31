"""The paper, claim by claim: what it says, and what the results say to it."""
