"""A run's folder, its files, and the machine it ran on."""
