"""Run commands in this process."""

import contextlib

from tests.attacks.calls import called


def tiny(**changed):
    """Options of a run that takes seconds, with `changed` in place of or in addition to the defaults."""
    options = {
        "depth": 1,
        "width": 8,
        "nets": 2,
        "inputs": 1,
        "epochs": 50,
        "samples": 2048,
        "pilot-samples": 1024,
        "cells": 16,
        "bins": 3,
        "w1-points": 100,
        "jobs": 1,
        "rules": "sdp,monte_carlo:samples=10",
        **changed,
    }
    return tuple(word for name, value in options.items() for word in (f"--{name}", str(value)))


def command(*words, cwd):
    with contextlib.chdir(cwd):
        return called(words, seconds=600)
