"""A router over shards, and how collections are spread over them."""
