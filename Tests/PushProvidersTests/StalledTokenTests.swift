import Cryptography
import EventLoop
import Foundation
import HTTPServer
import JSON
import PushCore
import Support
import Testing

@testable import PushProviders

@Suite("A stalled token endpoint", .timeLimit(.minutes(1))) struct StalledTokens {
    enum Stall: CaseIterable {
        case noSettings, noStreams, noWindow, noAnswer
    }

    private static let token = Array(#"{"access_token": "t1", "expires_in": 3600}"#.utf8)

    /// Makes an endpoint whose first connection stalls and whose others grant.
    private static func script(
        _ stall: Stall
    ) -> @Sendable (FramePeer.Connection, FramePeer.Event) -> Void {
        return { connection, event in
            let isBad = connection.number == 1
            if case .opened = event {
                switch stall {
                case .noSettings where isBad: break
                case .noStreams where isBad: connection.write(.settings((3, 0)))
                case .noWindow where isBad: connection.write(.settings((4, 0)))
                case .noSettings, .noStreams, .noWindow, .noAnswer: connection.write(.settings())
                }
            }
            guard case .frame(let frame) = event else { return }
            if frame.isA(.settings), frame.flags == 0, !(isBad && stall == .noSettings) {
                connection.write(WireFrame(.settings, flags: WireFrame.acknowledgement))
            }
            if frame.isA(.data), frame.flags & WireFrame.endStream != 0, !isBad {
                connection.write(
                    .head(frame.stream, [(":status", "200")]),
                    WireFrame(.data, flags: WireFrame.endStream, stream: frame.stream, token)
                )
            }
        }
    }

    @Test("A stalled connection is replaced after its first failed call")
    func replaced() async throws {
        for stall in Stall.allCases {
            try await FramePeer.run(Self.script(stall)) { peer, _ in
                let both =
                    FileManager.default.temporaryDirectory.path + "/"
                    + TestEnvironment.unique("both-") + ".pem"
                defer { try? FileManager.default.removeItem(atPath: both) }
                try await Bench.run {
                    $0.requestTimeout = .seconds(1)
                    $0.fcmTokenHosts = ["localhost:\(peer.port)"]
                    let texts = [$0.caFile ?? "", peer.caFile].compactMap {
                        try? String(contentsOfFile: $0, encoding: .utf8)
                    }
                    try? texts.joined(separator: "\n").write(
                        toFile: both,
                        atomically: true,
                        encoding: .utf8
                    )
                    $0.caFile = both
                } handler: { _ in
                    .json(["name": "projects/p/messages/1"])
                } _: { bench in
                    let secret: JSONObject = [
                        "type": "service_account", "project_id": "p", "client_email": "push@p",
                        "private_key": .string(
                            try SigningKey.generateRSA(bits: 2048).privateKeyPEM()
                        ),
                        "token_uri": .string(peer.origin + "/token"),
                    ]
                    let key = ProviderClients.Key(app: "a", provider: .fcm)
                    let first = try await bench.send(key, secret, try deliveries(.fcm, ["t"]))
                    #expect(first.map(\.outcome) == [.notSent], "\(stall)")
                    // A refused request is not repeated within a second.
                    let granted = try await eventually("a token from another connection") {
                        let next = try await bench.send(key, secret, try deliveries(.fcm, ["t"]))
                        return next.map(\.outcome) == [.accepted] ? true : nil
                    }
                    #expect(granted && peer.connections == 2, "\(stall): \(peer.connections)")
                }
            }
        }
    }
}
