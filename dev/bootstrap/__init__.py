"""Set-up of a working copy with nothing but the Python standard library; ``dev/setup`` is its command."""
