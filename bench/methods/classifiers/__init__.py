"""Classifiers of images that are trained by propagated laws."""
