// Why a device got a push, or why not.
//
// Authority: none. This module only reads: it writes no table, and sends nothing.
//
// `ExplainStore` gathers the facts about one push and one installation, by a few statements that each
// have an index (`ExplainFacts`). `ExplainDecision`, which is pure, turns them into an `Explanation`:
// one reason, one sentence, the next step, and five steps with what is known about each. HTTP, the
// command and pages show this one value, so that they give the same answer.
//
// An audience is chosen once, and a device may change afterwards. So each fact says whether it is of
// now or of the push's time, and a value that was not stored then is never replaced by today's.

package import Storage

extension PushDatabase {
    package var explanations: ExplainStore { ExplainStore(self) }
}
