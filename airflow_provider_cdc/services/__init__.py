"""What operators, pages and commands ask of a connector."""
