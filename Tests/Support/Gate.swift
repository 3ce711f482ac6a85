/// Blocks its callers until it is open.
package actor Gate {
    package init() {}

    private var isOpen = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    package func wait() async {
        if isOpen { return }
        await withCheckedContinuation { waiting.append($0) }
    }

    package func open() {
        isOpen = true
        for continuation in waiting { continuation.resume() }
        waiting = []
    }
}
