"""Flower loads a client's part of the fleet from here."""

from elastictrainer.fleet.client_app import app

__all__ = ["app"]
