"""Reads change streams."""
