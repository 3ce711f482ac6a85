/// A name under which something is measured. Only these are measured.
package struct Metric: Hashable, Sendable {
    package enum Kind: String, Sendable { case counter, gauge, histogram }

    package let name: String
    package let help: String
    package let kind: Kind

    private init(_ name: String, _ kind: Kind, _ help: String) {
        self.name = name
        self.kind = kind
        self.help = help
    }

    // The service itself.
    package static let serviceInfo = Metric(
        "carillon_service_info",
        .gauge,
        "1, with the service's name and version as labels."
    )
    package static let loopTurnsLate = Metric(
        "carillon_loop_late_turns_total",
        .counter,
        "Turns of the event loop longer than 50 ms."
    )

    // Ingest.
    package static let ingestAccepted = Metric(
        "ingest_objects_accepted_total",
        .counter,
        "Objects that Kafka has, and whose sender was told so."
    )
    package static let ingestRefused = Metric(
        "ingest_objects_refused_total",
        .counter,
        "Objects that were refused, by reason."
    )
    package static let ingestLimited = Metric(
        "ingest_requests_limited_total",
        .counter,
        "Requests that were to come again later: over an app's quota, or with too much held."
    )
    package static let ingestNotWritten = Metric(
        "ingest_records_not_acknowledged_total",
        .counter,
        "Records that Kafka did not acknowledge in time; their senders were told to repeat."
    )
    package static let ingestHeldBytes = Metric(
        "ingest_held_bytes",
        .gauge,
        "What requests hold until they are answered, as INGEST_MAX_HELD_BYTES counts it."
    )

    // HTTP server.
    package static let httpRequests = Metric(
        "http_server_requests_total",
        .counter,
        "Requests answered, by method and status class."
    )
    package static let httpRequestDuration = Metric(
        "http_server_request_duration_seconds",
        .histogram,
        "From the head to the answer's end."
    )
    package static let httpConnections = Metric(
        "http_server_open_connections",
        .gauge,
        "Connections open now."
    )
    package static let httpStreams = Metric(
        "http_server_open_streams",
        .gauge,
        "Streamed answers that are being made now."
    )
    package static let httpHeldAnswers = Metric(
        "http_server_held_answer_bytes",
        .gauge,
        "Of answers what their peers have not taken and the process holds."
    )
    package static let httpAcceptPauses = Metric(
        "http_server_accept_pauses_total",
        .counter,
        "Pauses of a listener after a failed accept, as when descriptors are used up."
    )
    package static let httpRefused = Metric(
        "http_server_refused_total",
        .counter,
        "Requests and connections refused, by reason."
    )

    package static let requestsLimited = Metric(
        "registration_requests_limited_total",
        .counter,
        "Requests refused as too many, by limit."
    )
    package static let auditEntriesWritten = Metric(
        "registration_audit_entries_total",
        .counter,
        "Calls with a master key that were written down."
    )

    // Postgres.
    package static let postgresClockDifference = Metric(
        "postgres_clock_host_ahead_seconds",
        .gauge,
        "How far this host's clock is ahead of Postgres'; negative: behind. Work follows Postgres' clock."
    )
    package static let postgresStatements = Metric(
        "postgres_statements_total",
        .counter,
        "Statements answered, by outcome."
    )
    package static let postgresConnections = Metric(
        "postgres_connections",
        .gauge,
        "Connections that are up."
    )
    package static let postgresReconnects = Metric(
        "postgres_reconnects_total",
        .counter,
        "Connections lost and opened again."
    )

    // Kafka.
    package static let kafkaConsumed = Metric(
        "kafka_consumed_records_total",
        .counter,
        "Records handed out, by Kafka topic."
    )
    package static let kafkaProduced = Metric(
        "kafka_produced_records_total",
        .counter,
        "Records acknowledged or failed, by outcome."
    )
    package static let kafkaBatches = Metric(
        "kafka_produced_batches_total",
        .counter,
        "Batches handed to a broker, each of one partition and a request by itself, by topic."
    )
    package static let kafkaBatchedRecords = Metric(
        "kafka_batched_records_total",
        .counter,
        "Records in those batches, by topic."
    )
    package static let kafkaLag = Metric(
        "kafka_consumer_lag_records",
        .gauge,
        "Records behind the end of the partitions held."
    )
    package static let kafkaQueue = Metric(
        "kafka_producer_queue_records",
        .gauge,
        "Records waiting for an acknowledgement."
    )
    package static let kafkaReadAhead = Metric(
        "kafka_consumer_queue_records",
        .gauge,
        "Records read ahead and not handed out yet, by consumer group."
    )
    package static let kafkaErrors = Metric(
        "kafka_errors_total",
        .counter,
        "Errors of clients, partitions, commits and records, by librdkafka's name."
    )

    // Simulator.
    package static let simulatorRequests = Metric(
        "simulator_requests_total",
        .counter,
        "Requests that the simulated providers received, by provider and status."
    )

    // Pushes.
    package static let pushEvents = Metric(
        "push_events_total",
        .counter,
        "Event records read, by what became of them."
    )
    package static let pushEventStages = Metric(
        "push_event_stage_seconds",
        .histogram,
        "How long each stage of an event for few devices takes, after the one before; on_the_wire is the"
            + " part of answered that a request waits for a stream."
    )
    package static let pushEventBatches = Metric(
        "push_event_batches_total",
        .counter,
        "Statements for events for few devices, by step: looked_up before they are sent, written after."
    )
    package static let pushBatchedEvents = Metric(
        "push_batched_events_total",
        .counter,
        "Events in those statements, by step."
    )
    package static let pushesReleased = Metric(
        "push_schedules_released_total",
        .counter,
        "Scheduled pushes whose time came."
    )
    package static let pushPlanningAge = Metric(
        "push_planning_oldest_age_seconds",
        .gauge,
        "Age of the oldest push whose audience is not planned yet; 0: none waits."
    )
    package static let pushDeadLetters = Metric(
        "push_dead_letters_total",
        .counter,
        "Records sent to the dead letters, by reason."
    )
    package static let pushDeliveries = Metric(
        "push_deliveries_total",
        .counter,
        "Deliveries settled, by provider and outcome."
    )
    package static let pushDeliveriesPlanned = Metric(
        "push_deliveries_planned_total",
        .counter,
        "Deliveries planned, by lane."
    )
    package static let pushAttempts = Metric(
        "push_delivery_attempts_total",
        .counter,
        "Provider answers, by provider and outcome."
    )
    package static let pushAttemptDuration = Metric(
        "push_delivery_attempt_duration_seconds",
        .histogram,
        "From handing a request to the provider's client to its answer."
    )
    package static let pushInFlight = Metric(
        "push_deliveries_in_flight",
        .gauge,
        "Deliveries handed to a provider's client."
    )
    package static let pushShardsHeld = Metric(
        "push_shards_held",
        .gauge,
        "Shards of broadcasts that this process works on."
    )
    package static let pushCheckpoints = Metric(
        "push_checkpoints_total",
        .counter,
        "Checkpoints of shards that are durable."
    )
    package static let pushMembersSent = Metric(
        "push_shard_members_sent_total",
        .counter,
        "Members of shards handed to a provider's client, repeats of a crash included."
    )
    package static let pushTokensDisabled = Metric(
        "push_tokens_disabled_total",
        .counter,
        "Installations disabled by a provider's word."
    )
    package static let pushDeadTokenWaves = Metric(
        "push_dead_token_waves_total",
        .counter,
        "Waves of dead tokens that stopped the clean-up."
    )
    package static let pushHandedBack = Metric(
        "push_deliveries_handed_back_total",
        .counter,
        "Deliveries that became rows due later without an attempt."
    )
    package static let securePayloadsKept = Metric(
        "secure_kept_total",
        .counter,
        "Secure payloads that were kept, with the push that rings for each, by how they are sealed."
    )
    package static let securePayloadsRead = Metric(
        "secure_read_total",
        .counter,
        "Answers that held a secure payload, by whether anybody had read it before."
    )
    package static let securePayloadsRefused = Metric(
        "secure_refused_total",
        .counter,
        "Requests about secure payloads that were refused, by reason."
    )
    package static let securePayloadsEnded = Metric(
        "secure_expired_total",
        .counter,
        "Secure payloads whose bytes were deleted, by whether they expired or were read once."
    )
    package static let secureWaitingHashes = Metric(
        "secure_waiting_hashes",
        .gauge,
        "Secrets of identities that wait to be hashed now."
    )
    package static let secureTampered = Metric(
        "secure_tampered_total",
        .counter,
        "Secure payloads that were asked for and did not open: not as they were kept, or not where."
    )
    package static let syncChanges = Metric(
        "sync_changes_total",
        .counter,
        "Records of dataset.changes that were read and could be used."
    )
    package static let syncJoined = Metric(
        "sync_joined_total",
        .counter,
        "Changes of datasets that were told together with another."
    )
    package static let syncPushed = Metric(
        "sync_pushed_total",
        .counter,
        "Devices that a push tells of a changed dataset."
    )
    package static let syncSuppressed = Metric(
        "sync_suppressed_total",
        .counter,
        "Changed datasets of which nobody but the writer was to be told."
    )
    package static let syncWaitingAge = Metric(
        "sync_waiting_age_seconds",
        .gauge,
        "Age of the oldest change of a dataset that waits to be told."
    )
    package static let ingestSinkStored = Metric(
        "ingest_sink_stored_total",
        .counter,
        "Objects of devices that were stored in Postgres."
    )
    package static let ingestSinkRepeated = Metric(
        "ingest_sink_repeated_total",
        .counter,
        "Objects of devices that were there already when they came to Postgres."
    )
    package static let ingestSinkErased = Metric(
        "ingest_sink_erased_total",
        .counter,
        "Objects of devices that were dropped, as whom they are about was erased since."
    )
    package static let ingestSinkBatches = Metric(
        "ingest_sink_batches_total",
        .counter,
        "Batches of objects that came to Postgres."
    )
    package static let configPublishedRecords = Metric(
        "config_published_records_total",
        .counter,
        "Records of config.published that were read and could be used."
    )
    package static let configAnnouncements = Metric(
        "config_announcements_total",
        .counter,
        "Versions that were announced to PUSH_RC."
    )
    package static let configAnnouncementDelay = Metric(
        "config_announcement_delay_seconds",
        .histogram,
        "From a publish to its announcement, of templates that are kept here."
    )
    package static let configRows = Metric(
        "config_rows_total",
        .counter,
        "Templates that others wrote into the table, by what was found of them."
    )
    package static let configFetches = Metric(
        "config_fetches_total",
        .counter,
        "Fetches of remote config that were answered or throttled, by state."
    )
    package static let configConditionsStopped = Metric(
        "config_conditions_stopped_total",
        .counter,
        "Conditions that took too long to evaluate in a fetch, and so counted as false."
    )
    package static let configStreams = Metric(
        "config_streams",
        .gauge,
        "Clients that listen for announcements now."
    )
    package static let configPublishes = Metric(
        "config_publishes_total",
        .counter,
        "Templates that were published or rolled back over HTTP, by type."
    )
    package static let jwksFetches = Metric(
        "jwks_fetches_total",
        .counter,
        "Times that an issuer was asked for its keys, by what came of it."
    )
    package static let jwksAge = Metric(
        "jwks_age_seconds",
        .gauge,
        "Age of the oldest keys of an issuer that tokens are checked by."
    )
    package static let outboxRelayed = Metric(
        "outbox_relayed_total",
        .counter,
        "Outbox rows that reached Kafka."
    )
    package static let installationsSaved = Metric(
        "installations_saved_total",
        .counter,
        "Installations created or updated."
    )
    package static let installationsSilenced = Metric(
        "installations_silenced_total",
        .counter,
        "Installations not valid any more, as they were silent for long."
    )
    package static let installationsExpired = Metric(
        "installations_expired_total",
        .counter,
        "Installations deleted, as they were silent for longer."
    )
}
