"""Triggers: they wait in the triggerer for sensors, operators and assets."""
