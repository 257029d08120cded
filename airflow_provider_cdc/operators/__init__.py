"""Tasks that capture, apply, send signals and steer connectors."""
