import Explain
import PushCore

/// Texts of explanations: a phrase names its text and its values, and the page formats them.
extension Words {
    func phrase(_ phrase: Phrase) -> String {
        self.phrase(phrase.template, phrase.values.map { ($0.name, value($0.value)) })
    }

    func value(_ value: Phrase.Value) -> String {
        switch value {
        case .text(let text): text
        case .count(let count): number(count)
        case .time(let time): moment(time)
        case .milliseconds: value.text
        case .flag(let isTrue): isTrue ? self("yes") : self("no")
        case .phrase(let inner): phrase(inner)
        }
    }
}
