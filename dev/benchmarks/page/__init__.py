"""How long the page has to wait for answers."""
