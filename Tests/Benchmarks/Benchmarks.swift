internal import FoundationEssentials
internal import Glibc

/// Measures modules for `deploy/bench`, which compares them with the best of their field in the
/// same run, and generates the load for complete services. Prints one JSON object.
///
/// One call is one round: `deploy/bench` alternates with the other side and compares medians, as
/// the load of the machine changes faster than a long measurement ends.
@main
struct Benchmarks {
    static func main() async {
        let arguments = Array(CommandLine.arguments.dropFirst())
        let rest = Array(arguments.dropFirst())
        let server = ProcessInfo.processInfo.environment["DATABASE_URL"]
        let brokers = ProcessInfo.processInfo.environment["KAFKA_BOOTSTRAP_SERVERS"]
        do {
            switch arguments.first {
            case "json" where arguments.count == 2: print(try measureJSON(file: arguments[1]))
            case "http" where arguments.count <= 2:
                try await serveHTTP(bytes: rest.first.flatMap(Int.init))
            case "sockets" where arguments.count == 1: try await serveSockets()
            case "postgres": print(try await measurePostgres(rest, server: server))
            case "kafka": print(try await measureKafka(rest, servers: brokers))
            case "transport": print(try await measureTransport(rest))
            case "sink": try await serveSink(rest)
            case "events": print(try await produceEvents(rest, servers: brokers))
            case "history": print(try await makeDays(rest, server: server))
            case "audience": print(try await measureAudience(rest, server: server))
            case "registry": print(try measureRegistry(rest))
            case "where": print(try await measureWhere(rest, server: server))
            case "requests": print(try measureRequests(rest))
            case "turns": print(try measureTurns(rest))
            case "tokens": print(try makeTokens(rest))
            default:
                throw BenchmarkError(
                    "usage: carillon-bench json FILE | http | sockets | postgres … | kafka … | transport …"
                        + " | sink … | events … | history DAYS | audience … | registry … | where … | requests …"
                        + " | turns … | tokens …"
                )
            }
        } catch {
            let line = Array("carillon-bench: \(error)\n".utf8)
            unsafe _ = write(2, line, line.count)
            exit(64)
        }
    }
}

struct BenchmarkError: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}
