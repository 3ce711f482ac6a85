internal import Foundation

/// Measures rooms for `deploy/bench`, which compares them with the best of their field in the same
/// run. Prints one JSON object.
///
/// One call is one round: `deploy/bench` takes turns with the other side and compares medians, as
/// what else the machine does changes faster than a long measurement ends.
@main
struct Benchmarks {
    static func main() async {
        let arguments = Array(CommandLine.arguments.dropFirst())
        do {
            switch arguments.first {
            case "json" where arguments.count == 2: print(try measureJSON(file: arguments[1]))
            case "http" where arguments.count == 1: try await serveHTTP()
            case "postgres":
                let server = ProcessInfo.processInfo.environment["DATABASE_URL"]
                print(try await measurePostgres(Array(arguments.dropFirst()), server: server))
            case "kafka":
                let servers = ProcessInfo.processInfo.environment["KAFKA_BOOTSTRAP_SERVERS"]
                print(try await measureKafka(Array(arguments.dropFirst()), servers: servers))
            case "transport": print(try await measureTransport(Array(arguments.dropFirst())))
            default:
                throw BenchmarkError(
                    "usage: carillon-bench json FILE | http | postgres … | kafka … | transport …"
                )
            }
        } catch {
            FileHandle.standardError.write(Data("carillon-bench: \(error)\n".utf8))
            exit(64)
        }
    }
}

struct BenchmarkError: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}
