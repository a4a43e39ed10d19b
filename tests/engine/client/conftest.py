"""Requests wait for brokers that are busy."""

from tests.support.patience import requests_are_waited_for

__all__ = ["requests_are_waited_for"]
