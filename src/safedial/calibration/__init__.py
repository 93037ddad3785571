"""Dose curves and constants from pilot data."""
