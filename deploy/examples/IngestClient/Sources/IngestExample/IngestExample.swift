import CarillonIngest
import Foundation

/// Reads objects from standard input and delivers each to Carillon.
@main
struct IngestExample {
    static let usage = """
        usage: ingest-example --url URL --app ID --key KEY --type TYPE --folder FOLDER [--drain]
               ingest-example --folder FOLDER --refused

        Reads JSON objects, one a line, from standard input. Each is written to FOLDER, its _id is
        printed, and it is sent until the service has it. What was in FOLDER before is sent, too.

          --drain     ends when standard input has ended and all is sent; else it waits for a signal
          --refused   prints what the service refused, one JSON object a line, and ends

        An object must not wait for more than 30 days (the service's INGEST_KEY_RETENTION): it is
        then set apart among the refused ones.
        """

    static func main() async {
        do {
            try await run(Array(CommandLine.arguments.dropFirst()))
        } catch {
            printError("\(error)")
            exit(1)
        }
    }

    static func run(_ arguments: [String]) async throws {
        var values: [String: String] = [:]
        var rest = arguments[...]
        while let option = rest.popFirst() {
            switch option {
            case "--help", "-h": return print(usage)
            case "--drain", "--refused": values[option] = "on"
            case "--url", "--app", "--key", "--type", "--folder": values[option] = rest.popFirst()
            default: misused("\(option) is not known")
            }
        }
        func value(_ option: String) -> String {
            guard let value = values[option] else { misused("\(option) is needed") }
            return value
        }
        let listsRefused = values["--refused"] != nil
        guard let url = URL(string: listsRefused ? "http://127.0.0.1" : value("--url")) else {
            misused("--url is no address")
        }
        let queue = try IngestQueue(
            folder: URL(fileURLWithPath: value("--folder")),
            server: IngestServer(
                url: url,
                app: listsRefused ? "" : value("--app"),
                key: listsRefused ? "" : value("--key")
            )
        )
        if listsRefused {
            for one in try await queue.refused() {
                print(String(decoding: try JSONEncoder().encode(one), as: UTF8.self))
            }
            return
        }
        let type = value("--type")
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await queue.run(report: printError) }
            try await read(into: queue, type: type)
            if values["--drain"] == nil { return try await group.waitForAll() }
            group.cancelAll()
            while let result = await group.nextResult() {
                if case .failure(let error) = result, !(error is CancellationError) { throw error }
            }
        }
        try await queue.drain(report: printError)
    }

    /// Adds the lines of standard input, as many at a time as one read returns.
    static func read(into queue: IngestQueue, type: String) async throws {
        var text = Data()
        while true {
            let (bytes, isEnd) = await Task.detached {
                let bytes = FileHandle.standardInput.availableData
                return (bytes, bytes.isEmpty)
            }.value
            text += bytes
            if isEnd { text += Data("\n".utf8) }
            var lines = text.split(
                separator: UInt8(ascii: "\n"),
                omittingEmptySubsequences: false
            )
            text = Data(lines.removeLast())
            let objects = lines.filter { !$0.allSatisfy { $0 == 0x20 || $0 == 0x0D } }.map {
                Data($0)
            }
            do {
                try await acknowledge(objects, queue, type)
            } catch QueueError.object {
                // One of them is not an object: the others are added all the same.
                for object in objects {
                    do {
                        try await acknowledge([object], queue, type)
                    } catch QueueError.object(let problem) {
                        printError(
                            "\(problem): \(String(decoding: object.prefix(200), as: UTF8.self))"
                        )
                    }
                }
            }
            if isEnd { return }
        }
    }

    static func acknowledge(_ objects: [Data], _ queue: IngestQueue, _ type: String) async throws {
        guard !objects.isEmpty else { return }
        let ids = try await queue.add(objects, type: type)
        FileHandle.standardOutput.write(Data(ids.map { $0 + "\n" }.joined().utf8))
    }

    @Sendable static func printError(_ text: String) {
        FileHandle.standardError.write(Data("ingest-example: \(text)\n".utf8))
    }

    static func misused(_ problem: String) -> Never {
        printError("\(problem)\n\(usage)")
        exit(64)
    }
}
