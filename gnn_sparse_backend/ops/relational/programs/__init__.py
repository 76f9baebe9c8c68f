"""The stage I programs of RGMS."""
