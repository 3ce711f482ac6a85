/// The rule for the type names of objects that devices send. A name becomes part of a Kafka topic,
/// a view's name and a path.
package enum IngestTypeName {
    package static let maximumBytes = 100

    package static func isWellFormed(_ name: String) -> Bool {
        guard let first = name.utf8.first, ASCII.isLetter(first),
            name.utf8.count <= maximumBytes
        else { return false }
        return name.utf8.allSatisfy { ASCII.isAlphanumeric($0) || "_.-".utf8.contains($0) }
    }

    /// Returns why a name for a type that an app declares is invalid; `nil` if it is valid.
    package static func problem(_ name: String) -> String? {
        guard isWellFormed(name) else {
            return
                "a type's name is a letter followed by at most 99 of the letters A-Z, a-z, digits,"
                + " '_', '.' and '-'"
        }
        let folded = name.lowercased()
        for reserved in ["segment", "push"] where folded.hasPrefix(reserved) {
            return
                "names that begin with '\(reserved.prefix(1).uppercased() + reserved.dropFirst())'"
                + " are those of built-in types"
        }
        return nil
    }

    /// Returns a form that is the same for all names whose topics Kafka would confuse: in lower case, with
    /// `_` for `.`.
    package static func folded(_ name: String) -> String {
        String(name.lowercased().map { $0 == "." ? "_" : $0 })
    }
}

/// Types that every app has without declaring them.
package enum BuiltInIngestType: String, Sendable, CaseIterable {
    case segmentTrack = "SegmentTrack"
    case segmentIdentify = "SegmentIdentify"
    case segmentGroup = "SegmentGroup"
    case segmentPage = "SegmentPage"
    case segmentScreen = "SegmentScreen"
    case segmentAlias = "SegmentAlias"
    case pushOpened = "PushOpened"
    case pushReceived = "PushReceived"

    /// The properties that name the subject of an object.
    package var subjects: [String] {
        switch self {
        case .segmentTrack, .segmentIdentify, .segmentGroup, .segmentPage, .segmentScreen,
            .segmentAlias:
            ["userId", "anonymousId"]
        case .pushOpened, .pushReceived: ["installationId"]
        }
    }
}
