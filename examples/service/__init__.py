"""A service around an Agent: conversations over HTTP, saved in SQLite or PostgreSQL. Made to be copied.

``python -m examples.service`` starts it. Each module has one job:

* ``desk``: the Agent, its tools, and which of them a person has to allow
* ``conversations``: one State object per conversation that somebody uses
* ``runs``: runs them, in a nursery of the service
* ``service``: what can be done with conversations, whoever asks for it
* ``app``, ``bodies``, ``events``, ``live_text``, ``views``: HTTP
* ``__main__``: the process: settings, socket, signals
* ``fake_model``, ``client``, ``load_test``: for trying it, and for testing it

docs/services.md says why it is made as it is.
"""
