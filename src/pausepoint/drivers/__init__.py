"""Who drives sessions: this process (`local`)."""
