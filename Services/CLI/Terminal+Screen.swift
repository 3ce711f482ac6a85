import Glibc
import Observability

/// A live view takes the whole terminal, and gives it back as it was.
extension Terminal {
    struct Size: Equatable {
        var columns: Int
        var rows: Int
    }

    /// The size of the terminal; 80 by 24 if it does not say.
    static var size: Size {
        var size = winsize()
        guard unsafe ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0,
            size.ws_row > 0
        else { return Size(columns: 80, rows: 24) }
        return Size(columns: Int(size.ws_col), rows: Int(size.ws_row))
    }

    static var isScreen: Bool { isatty(STDOUT_FILENO) == 1 }

    /// Switches to the second screen, without cursor and wrapped lines.
    static func enterScreen() {
        Log.standardOutput(Array("\u{1B}[?1049h\u{1B}[?25l\u{1B}[?7l".utf8))
    }

    /// Returns to the first screen. May be called more than once.
    static func leaveScreen() {
        Log.standardOutput(Array("\u{1B}[?7h\u{1B}[?25h\u{1B}[?1049l".utf8))
    }

    /// Shows these lines in place of all that was shown.
    static func show(_ lines: [String]) {
        var bytes = Array("\u{1B}[H".utf8)
        for (index, line) in lines.enumerated() {
            if index > 0 { bytes += Array("\r\n".utf8) }
            bytes += PrintableText.bytes(of: PrintableText.line(line)) + Array("\u{1B}[K".utf8)
        }
        Log.standardOutput(bytes + Array("\u{1B}[J".utf8))
    }
}
