"""What several folders of tests share: one idea per file."""
