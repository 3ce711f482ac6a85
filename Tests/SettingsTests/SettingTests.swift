import Settings
import Testing

private enum Colour: String, CaseIterable { case red, green }

@Suite(.timeLimit(.minutes(1)))
struct SettingTests {
    private let reader = ConfigurationReader([
        "COUNT": "12", "WAIT": "500ms", "LONG": "7d", "BARE": "25", "COLOUR": "blue", "PORT": "",
        "HOSTS": "a, b,,c", "FLAG": "maybe", "KEY": "hunter2",
    ])

    private func problem<Value>(of setting: Setting<Value>) -> String? {
        do {
            _ = try reader.value(of: setting)
            return nil
        } catch {
            return error.description
        }
    }

    @Test("An invalid value is an error with its variable and the valid values")
    func unusableValuesNameTheirVariable() {
        #expect(
            problem(of: Setting<Int>("COUNT", in: 1...10, default: 1, ""))
                == "COUNT is \"12\"; expected 1 to 10"
        )
        #expect(
            problem(of: Setting<Duration>("BARE", in: .zero ... .seconds(90), default: .zero, ""))
                == "BARE is \"25\"; expected 0ms to 90s"
        )
        #expect(
            problem(of: Setting<Duration>("LONG", in: .zero ... .seconds(3600), default: .zero, ""))
                == "LONG is \"7d\"; expected 0ms to 1h"
        )
        #expect(
            problem(of: Setting<Colour>("COLOUR", default: .red, ""))
                == "COLOUR is \"blue\"; expected red, green"
        )
        #expect(
            problem(of: Setting<Bool>("FLAG", default: false, ""))
                == "FLAG is \"maybe\"; expected true or false"
        )
        #expect(
            problem(of: Setting<String>.file("HOSTS", takes: "a file", ""))
                == "HOSTS names a file that cannot be read: a, b,,c"
        )
        for name in ["MISSING", "PORT"] {
            #expect(
                problem(of: Setting<String>(name, takes: "a text", ""))
                    == "\(name) is not set, and has no default"
            )
        }
    }

    @Test("An error does not contain a secret")
    func secretsAreNotShown() {
        let setting = Setting<Int>.secret("KEY", takes: "a number", "") { _ in
            throw ConfigurationError("length", "is wrong")
        }
        #expect(problem(of: setting) == "KEY cannot be used: length is wrong")
    }

    @Test("Values are read with their units, and absent ones have defaults")
    func valuesAreRead() throws {
        #expect(try reader.value(of: Setting<Int>("COUNT", in: 1...100, default: 1, "")) == 12)
        let absent = Setting<Int>("NONE", in: 1...100, default: 7, "")
        #expect(try reader.value(of: absent) == 7)
        #expect(try reader.optional(absent) == nil)
        let long = Duration.seconds(1_000_000)
        for (name, value) in [("WAIT", Duration.milliseconds(500)), ("LONG", .seconds(604_800))] {
            let setting = Setting<Duration>(name, in: .zero...long, default: .zero, "")
            #expect(try reader.value(of: setting) == value)
        }
        #expect(try reader.value(of: Setting<[String]>("HOSTS", takes: "", "")) == ["a", "b", "c"])
        #expect(reader.isSetEmpty(Setting<Int>("PORT", in: 0...1, default: nil, "")))
    }

    @Test("Help shows a range and a default in the form of a setting")
    func entriesAreTexts() {
        let bytes = Setting<Int>(
            "SIZE",
            in: 1024...(1 << 30),
            unit: .bytes,
            default: 1 << 20,
            "what fits"
        )
        let wait = Setting<Duration>(
            "WAIT",
            in: .milliseconds(10)...Duration.seconds(3600),
            default: .seconds(90),
            "how long"
        )
        #expect(
            SettingEntry.help([bytes.entry, wait.entry]) == """
                  SIZE=1048576 (1 MiB)
                      what fits. Takes 1 KiB to 1 GiB, in bytes.
                  WAIT=90s
                      how long. Takes 10ms to 1h.
                """
        )
        #expect(
            SettingEntry.table([("one", [wait.entry]), ("two", [bytes.entry, wait.entry])]) == """
                | Variable | Read by | Default | Takes | Meaning |
                |---|---|---|---|---|
                | `WAIT` | one, two | 90s | 10ms to 1h | how long |
                | `SIZE` | two | 1048576 (1 MiB) | 1 KiB to 1 GiB, in bytes | what fits |

                """
        )
    }
}
