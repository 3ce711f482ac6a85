import PushCore
import PushStorage

/// The filter of the list of pushes: the values of its form are part of the address.
struct PushFilter {
    enum State: String, CaseIterable {
        case any, open, scheduled, done, cancelled, failed

        var statuses: [PushStatus]? {
            switch self {
            case .any: nil
            case .open: [.queued, .planning, .sending]
            case .scheduled: [.scheduled]
            case .done: [.done]
            case .cancelled: [.cancelled]
            case .failed: [.failed]
            }
        }

        func title(_ t: Words) -> String {
            switch self {
            case .any: t("Any")
            case .open: t("Being sent")
            case .scheduled: t("Scheduled")
            case .done: t("Done")
            case .cancelled: t("Cancelled")
            case .failed: t("Failed")
            }
        }
    }

    let state: State
    /// The id of a push, its beginning, or the id of an event.
    let text: String?
    /// The push after which the page begins.
    let after: String?

    init(_ visit: Visit) {
        state = visit.query("status").flatMap(State.init(rawValue:)) ?? .any
        text = visit.query("q")
        after = visit.query("after")
    }

    var isEmpty: Bool { state == .any && text == nil && after == nil }

    /// The values of the form, to be saved; empty if there is nothing to save.
    var values: KeyValuePairs<String, String?> {
        state == .any && text == nil
            ? [:] : ["status": state == .any ? nil : state.rawValue, "q": text]
    }

    func address(_ visit: Visit, after: String?, file: String = "pushes") -> Address {
        visit.address(
            file,
            query: ["status": state == .any ? nil : state.rawValue, "q": text, "after": after]
        )
    }

    func form(_ visit: Visit) -> HTML {
        let t = visit.t
        let states = State.allCases.map { ($0.rawValue, $0.title(t)) }
        let search = Field("q", t("Push or event id")).input(text ?? "", type: "search")
        let choice = Field("status", t("Status")).select(state.rawValue, states)
        return Part.filter(visit.address("pushes"), search + choice, t("Filter"))
    }
}
