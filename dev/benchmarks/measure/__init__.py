"""Figures out of measured runs, and stopwatches."""
