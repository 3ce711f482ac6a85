// Observability: log lines and metrics, and their only names.
//
// Authority: `LogKey` and `Metric` are closed lists. Nothing here suspends, and nothing needs
// shutting down: a line is written before the call returns.
