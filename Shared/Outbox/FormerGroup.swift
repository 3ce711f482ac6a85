import EventLoop
package import Kafka
import Observability
package import PushEvents
package import ServiceKit

/// The consumer group that read a reader's topics in the versions before, if that was another one. Its
/// positions are taken over once, before the reader's own group is joined for the first time: nothing
/// is skipped, and nothing is read from its beginning again.
///
/// While members of both groups run, during an upgrade, each record may be read by both: readers know an
/// event or an object again by its id.
package struct FormerGroup: Sendable {
    private let reader: KafkaTopicReader
    private let name: String
    private let kafka: KafkaConfiguration
    private let topics: KafkaTopics
    private let runtime: ServiceRuntime

    package init(
        of reader: KafkaTopicReader,
        under name: String,
        _ kafka: KafkaConfiguration,
        _ topics: KafkaTopics,
        _ runtime: ServiceRuntime
    ) {
        self.reader = reader
        self.name = name
        self.kafka = kafka
        self.topics = topics
        self.runtime = runtime
    }

    /// Tries until it has succeeded, or the task is cancelled.
    package func inheritPositions() async {
        guard let former = reader.formerGroup(under: name) else { return }
        var pause = Pause()
        while !Task.isCancelled {
            do {
                try await KafkaAdmin.inheritPositions(
                    of: reader.group(under: name),
                    from: former,
                    in: { reader.reads($0, of: topics) },
                    kafka,
                    on: runtime.mainLoop
                )
                return
            } catch {
                runtime.log.warning(
                    "the positions of the former group cannot be taken over yet",
                    [.kafkaGroup: .string(former), .error: .string("\(error)")]
                )
                await pause.wait(on: runtime.mainLoop)
            }
        }
    }
}
