"""Drill-downs: the layers at which the error of one measurement enters."""
