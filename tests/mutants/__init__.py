"""Seeded mutants of the product, each convicted by the cheapest test that should see it."""
