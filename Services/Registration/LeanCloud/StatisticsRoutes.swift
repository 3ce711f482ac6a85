import Gateway
import HTTPServer
import JSON
import PushCore
import PushStorage

/// The statistics that LeanCloud's old SDKs report. Only the opens of apps and of pushes are counted; all
/// else is answered as the SDKs expect, and dropped.
extension LeanCloudSurface {
    static let maximumStatisticsBytes = 256 << 10

    static let statisticsPatterns: Set<String> = [
        "stats/collect", "stats/open/collect", "stats/crash", "always_collect",
    ]

    var statisticsRoutes: [LeanCloudRoute] {
        [
            LeanCloudRoute(.post, "stats/collect") { try await collect($0) },
            LeanCloudRoute(.post, "stats/open/collect") { try await collect($0) },
            LeanCloudRoute(.post, "stats/crash") { _ in .empty },
            // The SDK's report on its own requests.
            LeanCloudRoute(.put, "always_collect") { _ in .empty },
            LeanCloudRoute(.get, "statistics/apps/:app/sendPolicy") { _ in
                // 6: reports are sent when the app starts.
                LeanCloudAnswer(["policy": 6, "enable": true, "parameters": [:]])
            },
        ]
    }

    private func collect(_ call: LeanCloudCall) async throws -> LeanCloudAnswer {
        let report = OpenReport(try call.object())
        if !report.isEmpty {
            try await database.appOpens.add(
                app: call.caller.appID,
                opens: report.opens,
                pushOpens: report.pushOpens,
                installation: report.installation
            )
        }
        return .empty
    }
}

/// The opens in one report of statistics. Reports name no push.
struct OpenReport: Equatable {
    /// How often the app was opened, with or without a push.
    private(set) var opens = 0
    /// How often a push opened the app.
    private(set) var pushOpens = 0
    /// The object id of the installation, if the report names one.
    private(set) var installation: String?

    /// The limit of opens in one report, as the app key is public and anyone can send reports.
    static let maximum = 1000
    private static let maximumIDBytes = 64

    var isEmpty: Bool { opens == 0 && pushOpens == 0 }

    /// - Parameter body: The form of the SDKs (`events.event`, each with its `name` and perhaps `acc`, how
    ///   often it occurred), or that of REST (`events`, each with its `event`).
    init(_ body: JSONObject) {
        let events = body["events"]?.array ?? body["events"]?.object?["event"]?.array ?? []
        for event in events.lazy.compactMap(\.object) {
            let count = min(max(event["acc"]?.wholeNumber ?? 1, 1), Self.maximum)
            switch event["name"]?.string ?? event["event"]?.string {
            case "!AV!AppOpen": opens = min(opens + count, Self.maximum)
            case "!AV!PushOpen": pushOpens = min(pushOpens + count, Self.maximum)
            default: continue
            }
        }
        if let id = body["device"]?.object?["iid"]?.string, !id.isEmpty,
            id.utf8.count <= Self.maximumIDBytes, !id.utf8.contains(0)
        {
            installation = id
        }
    }
}
