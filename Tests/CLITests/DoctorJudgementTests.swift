import Testing

@testable import CLI

@Suite("The doctor's findings and next steps", .timeLimit(.minutes(1)))
struct DoctorJudgementTests {
    @Test("A clock that differs from that of Postgres by more than five seconds is a warning")
    func clock() {
        #expect(Doctor.assess(hostIsAhead: .seconds(5)).status == .ok)
        #expect(Doctor.assess(hostIsAhead: .milliseconds(-4999)).status == .ok)
        let finding = Doctor.assess(hostIsAhead: .seconds(-120))
        #expect(finding.status == .warning)
        #expect(
            finding.detail
                == "this host's clock is 120 s behind Postgres': synchronize both clocks with NTP"
        )
    }

    @Test("A push that waits to be planned for more than a minute is a warning with a next step")
    func planning() {
        #expect(Doctor.assess(oldestInPlanning: nil).status == .ok)
        #expect(Doctor.assess(oldestInPlanning: .seconds(60)).status == .ok)
        let finding = Doctor.assess(oldestInPlanning: .seconds(240))
        #expect(finding.status == .warning)
        #expect(finding.detail.contains("240 s old: see it in carillon push list"))
    }
}
