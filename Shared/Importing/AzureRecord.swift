import AzureHub
import InstallationStorage
import JSON
import PushCore

/// A registration of an Azure notification hub, an XML description on one line, as the hub's export job
/// writes it; or an installation as JSON.
enum AzureRecord {
    /// - Throws: `Rejection`.
    static func installation(
        _ bytes: [UInt8],
        app: String,
        now: Instant,
        newID: () -> String
    ) throws(Rejection) -> ImportedInstallation {
        let first = bytes.first { $0 > 0x20 }
        let wanted =
            first == UInt8(ascii: "<") ? try registration(bytes) : try installation(bytes, now)
        do {
            let fresh = Installation(app: app, objectID: newID(), at: now)
            return ImportedInstallation(
                installation: try wanted.applied(to: fresh, namesChannel: true, now: now),
                keys: try wanted.keys(namesChannel: true),
                rule: .azure,
                hasOwnID: false,
                changedAt: nil,
                templateNames: wanted.channel.templates.map(\.name)
            )
        } catch {
            throw Rejection(surface: error)
        }
    }

    private static func registration(_ bytes: [UInt8]) throws(Rejection) -> HubInstallation {
        do throws(AzureError) {
            return try HubInstallation(exported: bytes)
        } catch {
            throw Rejection(azure: error)
        }
    }

    private static func installation(
        _ bytes: [UInt8],
        _ now: Instant
    ) throws(Rejection) -> HubInstallation {
        let record = try RecordValue.object(bytes)
        guard let id = record["installationId"]?.string else {
            throw Rejection("installationId is missing")
        }
        guard (1...256).contains(id.utf8.count), id.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f })
        else { throw Rejection("installationId must be 1 to 256 bytes of text") }
        do throws(AzureError) {
            return try HubInstallation(record, id: id)
        } catch {
            throw Rejection(azure: error)
        }
    }
}

extension Rejection {
    /// Azure's errors name the path of a field; parser errors have a place, which is left out.
    fileprivate init(azure error: AzureError) {
        let text = error.description
        self.init(text.hasPrefix("the body is not XML") ? "invalid XML" : text)
    }
}
