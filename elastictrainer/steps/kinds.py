"""The kinds of work that is timed: of steps, and of passes over the images."""

FULL = "full"  # a step that trains every tensor,
PLAIN = "plain"  # a step of a selection, from images to update,
CACHE_WRITE = "cache_write"  # not a step: a pass over the images that writes the cache,
CACHE_READ = "cache_read"  # and a cached step, which begins by reading it
