// ServiceKit: the parts that each `main` needs. Configuration is read once (module Settings),
// arguments by `Arguments`; `runService` owns logs, loops, signals, the grace period and the exit
// status.
//
// Authority: nothing else reads the environment, installs a signal handler or ends the process.
// Shutdown: the parts of a service are cancelled one by one in the reverse of their order, each
// awaited, all within `SHUTDOWN_GRACE`.

/// The version of every executable, as in `--version` and `carillon_service_info`.
package let carillonVersion = "0.1.0"
