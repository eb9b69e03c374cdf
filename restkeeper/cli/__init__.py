"""The commands. Importing this package imports none of them: a server has to patch the standard library before."""
