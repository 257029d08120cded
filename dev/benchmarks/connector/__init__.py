"""What whole connectors cost, and how late their changes are."""
