"""Pictures of profiles and run folders, read from their files only."""
