"""Segmentation losses, one a file."""
