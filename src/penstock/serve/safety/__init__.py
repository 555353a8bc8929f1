"""Who may ask for what: the guard in front of everything, tokens, sessions, the audit log."""
