"""Errors of the core.

::

    PolicyError             the core was asked for something it cannot decide
    ├── UnknownJobError     the observation has no such job
    └── UnknownPolicyError  no scheduling policy is registered under that name
"""


class PolicyError(Exception):
    """Root of every error that the core raises."""


class UnknownJobError(PolicyError):
    """The observation has no job of that id; the message names it."""


class UnknownPolicyError(PolicyError):
    """No scheduling policy is registered under the asked name; the message lists those that are."""
