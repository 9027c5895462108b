"""Flower loads the server's part of the fleet from here."""

from elastictrainer.fleet.server_app import app

__all__ = ["app"]
