import Cryptography
import JSON
import PushStorage
import RemoteConfig

extension ConfigMemory.Known {
    /// Made of what Postgres keeps; may take long for a large template.
    static func compiled(
        _ json: JSONValue,
        version: Int,
        of app: String
    ) throws -> (known: ConfigMemory.Known, weight: Int) {
        let template: ConfigTemplate
        do throws(ConfigTemplateError) {
            template = try ConfigTemplate(json, namespace: .firebase, isStored: true)
        } catch {
            throw StoredTemplateRefused(app: app, version: version, reason: error.description)
        }
        // Room for some hundred answers of a small template, and for some of a large one.
        let answers = min(4 << 20, (64 << 10) + 8 * json.weightBytes)
        // Used on the loop alone, as the template is.
        let hasher = SHA256Hasher()
        let config = CompiledConfig(
            template,
            app: app,
            version: version,
            digest: { message in
                var digest: [UInt8] = []
                hasher.hash(message, into: &digest)
                return digest
            },
            cacheBytes: answers
        )
        return (
            ConfigMemory.Known(version: version, config: config),
            answers + 4 * json.weightBytes + template.patternBytes
        )
    }
}

/// What is kept as good does not hold for this version of the program.
struct StoredTemplateRefused: Error, Equatable {
    let app: String
    let version: Int
    let reason: String
}
