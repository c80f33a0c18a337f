"""`doctor`: documents are gathered first, then judged by pure functions, each finding with its remedy."""
