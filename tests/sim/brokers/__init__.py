"""The simulator of the intercom: one place, its brokers one after another, and who meets there."""
