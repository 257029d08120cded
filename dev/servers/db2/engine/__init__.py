"""The engine, Apache Derby, and the driver to it."""
