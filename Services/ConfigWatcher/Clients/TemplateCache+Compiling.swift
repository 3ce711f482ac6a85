import Cryptography
import JSON
import RemoteConfig

extension TemplateCache.Known {
    /// Compiles a stored template; may take long for a large one.
    static func compiled(
        _ json: JSONValue,
        version: Int,
        of app: String
    ) throws -> (known: TemplateCache.Known, weight: Int) {
        let template: ConfigTemplate
        do throws(ConfigTemplateError) {
            template = try ConfigTemplate(json, namespace: .firebase, isStored: true)
        } catch {
            throw InvalidStoredTemplate(app: app, version: version, reason: error.description)
        }
        // Memory for some hundred responses of a small template, or for a few of a large one.
        let answers = min(4 << 20, (64 << 10) + 8 * json.weightBytes)
        // Used on the loop only, like the template.
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
            TemplateCache.Known(version: version, config: config),
            answers + 4 * json.weightBytes + template.patternBytes
        )
    }
}

/// Thrown if a stored template, which was valid once, is invalid for this version of the program.
struct InvalidStoredTemplate: Error, Equatable {
    let app: String
    let version: Int
    let reason: String
}
