"""The isolation experiment: whether an engine keeps apart what must be apart, shown by requests and nothing else.

- `cases`, `plan`, `questions`, `usage`, `counters` and `judgement` are pure: what is asked, and what the answers show;
- `running` and `engine_http` send, and know nothing of verdicts;
- `conformance` is the suite for one engine, made of such experiments.

Rules:

- a verdict rests on cached tokens, as answers or the engine's counters tell them; seconds are noted and decide nothing;
- nothing is `ISOLATED` unless the same experiment has shown, in every trial, that what is reused is seen.
"""
