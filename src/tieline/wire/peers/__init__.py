"""The wire of pi and oh-my-pi windows: its frames, its wrapper, its connections and what they mean here."""
