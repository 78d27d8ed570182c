"""How one thing changes: tables and a `step` each."""
