// Observability: log lines and metrics, and the only names under which either is kept.
//
// Authority: `LogKey` and `Metric` are closed lists. Nothing here suspends, and nothing needs
// shutting down: a line is written before the call returns.
