"""The networks: made, read, continued and exported."""
