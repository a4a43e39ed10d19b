"""The proof of repair: seeded damaged stores, judged by a reader that shares no code with the engine.

`python -m tests.proof --stores 300 --seed 0` (`make proof`); README.md beside this file says what is judged and how.
"""
