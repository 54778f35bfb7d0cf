"""The program with every command loaded: what its documentation is made from."""

from visar.cli.app import ALL, make_app

app = make_app(ALL)
