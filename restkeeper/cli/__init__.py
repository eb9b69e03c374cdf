"""The commands. This package imports none of them: a server must patch the standard library first."""
