"""What update documents make of a document."""
