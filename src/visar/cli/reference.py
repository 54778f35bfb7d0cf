"""The program with every command loaded, for its documentation."""

from visar.cli.app import ALL, make_app

app = make_app(ALL)
