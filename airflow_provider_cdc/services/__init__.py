"""Answer operators, pages and commands about connectors."""
