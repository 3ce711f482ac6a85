/// A name of a metric. Only these are measured.
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
        "Objects acknowledged by Kafka and accepted."
    )
    package static let ingestRefused = Metric(
        "ingest_objects_refused_total",
        .counter,
        "Objects rejected, by reason."
    )
    package static let ingestLimited = Metric(
        "ingest_requests_limited_total",
        .counter,
        "Requests answered with a later retry: over an app's quota, or too many bytes held."
    )
    package static let ingestNotWritten = Metric(
        "ingest_records_not_acknowledged_total",
        .counter,
        "Records that Kafka did not acknowledge in time; their senders were asked to retry."
    )
    package static let ingestHeldBytes = Metric(
        "ingest_held_bytes",
        .gauge,
        "Bytes that requests hold until they are answered, as INGEST_MAX_HELD_BYTES counts them."
    )

    package static let realmSockets = Metric(
        "ingest_realm_open_sockets",
        .gauge,
        "Open WebSockets of Realm clients."
    )
    package static let realmHeldBytes = Metric(
        "ingest_realm_held_bytes",
        .gauge,
        "Bytes of Realm clients' uploads that wait, as INGEST_REALM_MAX_HELD_BYTES counts them."
    )
    package static let realmPauses = Metric(
        "ingest_realm_pauses_total",
        .counter,
        "Realm clients that were asked to repeat their uploads later: Kafka, Postgres or a quota."
    )
    package static let realmEnds = Metric(
        "ingest_realm_disconnected_total",
        .counter,
        "Realm clients that were disconnected for what they sent, by reason."
    )
    package static let realmDropped = Metric(
        "ingest_realm_objects_dropped_total",
        .counter,
        "Objects of two-way or embedded classes, which are acknowledged and not stored."
    )
    package static let realmUnreadable = Metric(
        "ingest_realm_unreadable_transactions_total",
        .counter,
        "Transactions of Realm clients that cannot be decoded, and are dead letters."
    )
    package static let realmComplaints = Metric(
        "ingest_realm_complaints_total",
        .counter,
        "Errors of this service that Realm clients reported."
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
        "Time from a request's head to the end of its response."
    )
    package static let httpConnections = Metric(
        "http_server_open_connections",
        .gauge,
        "Connections open now."
    )
    package static let httpStreams = Metric(
        "http_server_open_streams",
        .gauge,
        "Streamed responses in progress."
    )
    package static let httpHeldAnswers = Metric(
        "http_server_held_answer_bytes",
        .gauge,
        "Bytes of responses that the process holds and their peers have not read."
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
        "Audit entries of calls with a master key."
    )

    // Connections of devices.
    package static let connectionsOpen = Metric(
        "connections_open",
        .gauge,
        "Open connections of devices that are logged in, by dialect."
    )
    package static let connectionLogins = Metric(
        "connection_logins_total",
        .counter,
        "Logins of devices, by dialect."
    )
    package static let connectionRefusals = Metric(
        "connection_refusals_total",
        .counter,
        "Connections of devices that were refused or sent away, by close code."
    )
    package static let connectionMessagesSent = Metric(
        "connection_messages_sent_total",
        .counter,
        "Messages written to devices' connections, with repeats."
    )
    package static let connectionMessagesAcknowledged = Metric(
        "connection_messages_acknowledged_total",
        .counter,
        "Messages that a device acknowledged, once each."
    )
    package static let connectionLag = Metric(
        "connection_lag_seconds",
        .histogram,
        "Time from the storing of a message to its writing; days for devices that were offline."
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
        "Event records read, by result."
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
        "Scheduled pushes that were released."
    )
    package static let pushPlanningAge = Metric(
        "push_planning_oldest_age_seconds",
        .gauge,
        "Age of the oldest push whose audience is not planned yet; 0 if none waits."
    )
    package static let pushDeadLetters = Metric(
        "push_dead_letters_total",
        .counter,
        "Dead letters written, by reason."
    )
    package static let pushDeliveries = Metric(
        "push_deliveries_total",
        .counter,
        "Deliveries that ended, by provider and outcome."
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
        "Time from handing a request to the provider's client to its answer."
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
        "Installations disabled because a provider rejected their token."
    )
    package static let pushDeadTokenWaves = Metric(
        "push_dead_token_waves_total",
        .counter,
        "Waves of dead tokens that stopped the clean-up."
    )
    package static let pushHandedBack = Metric(
        "push_deliveries_handed_back_total",
        .counter,
        "Deliveries rescheduled without an attempt."
    )
    package static let pushSlotExcess = Metric(
        "push_slots_excess_total",
        .counter,
        "Slots of deliveries in flight that were released and not owned: a defect."
    )
    package static let securePayloadsKept = Metric(
        "secure_kept_total",
        .counter,
        "Secure payloads stored, each with its push, by how they are sealed."
    )
    package static let securePayloadsRead = Metric(
        "secure_read_total",
        .counter,
        "Responses with a secure payload, by whether it had been read before."
    )
    package static let securePayloadsRefused = Metric(
        "secure_refused_total",
        .counter,
        "Requests for secure payloads refused, by reason."
    )
    package static let securePayloadsEnded = Metric(
        "secure_expired_total",
        .counter,
        "Secure payloads whose bytes were deleted, by whether they expired or were read once."
    )
    package static let secureWaitingHashes = Metric(
        "secure_waiting_hashes",
        .gauge,
        "Secrets of identities that wait to be hashed."
    )
    package static let secureTampered = Metric(
        "secure_tampered_total",
        .counter,
        "Secure payloads that could not be opened: changed, or moved to another row."
    )
    package static let syncChanges = Metric(
        "sync_changes_total",
        .counter,
        "Valid records read from dataset.changes."
    )
    package static let syncJoined = Metric(
        "sync_joined_total",
        .counter,
        "Changes of datasets that were merged into one notification with another."
    )
    package static let syncPushed = Metric(
        "sync_pushed_total",
        .counter,
        "Devices notified of a changed dataset."
    )
    package static let syncSuppressed = Metric(
        "sync_suppressed_total",
        .counter,
        "Changed datasets without a device to notify besides the writer."
    )
    package static let syncWaitingAge = Metric(
        "sync_waiting_age_seconds",
        .gauge,
        "Age of the oldest change of a dataset that waits to be notified."
    )
    package static let ingestSinkStored = Metric(
        "ingest_sink_stored_total",
        .counter,
        "Objects of devices that were stored in Postgres."
    )
    package static let ingestSinkRepeated = Metric(
        "ingest_sink_repeated_total",
        .counter,
        "Objects of devices that were stored in Postgres already: duplicates."
    )
    package static let ingestSinkErased = Metric(
        "ingest_sink_erased_total",
        .counter,
        "Objects of devices that were dropped, as their subject has been erased."
    )
    package static let ingestSinkBatches = Metric(
        "ingest_sink_batches_total",
        .counter,
        "Batches of objects written to Postgres."
    )
    package static let configPublishedRecords = Metric(
        "config_published_records_total",
        .counter,
        "Valid records read from config.published."
    )
    package static let configAnnouncements = Metric(
        "config_announcements_total",
        .counter,
        "Versions announced to PUSH_RC."
    )
    package static let configAnnouncementDelay = Metric(
        "config_announcement_delay_seconds",
        .histogram,
        "Time from a publish to its announcement, of templates stored here."
    )
    package static let configRows = Metric(
        "config_rows_total",
        .counter,
        "Templates written to the table by other systems, by result of their validation."
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
        "Clients that listen for announcements."
    )
    package static let configPublishes = Metric(
        "config_publishes_total",
        .counter,
        "Templates that were published or rolled back over HTTP, by type."
    )
    package static let jwksFetches = Metric(
        "jwks_fetches_total",
        .counter,
        "Key fetches from issuers, by result."
    )
    package static let jwksAge = Metric(
        "jwks_age_seconds",
        .gauge,
        "Age of the oldest issuer keys that verify tokens."
    )
    package static let outboxRelayed = Metric(
        "outbox_relayed_total",
        .counter,
        "Outbox rows relayed to Kafka."
    )
    package static let installationsSaved = Metric(
        "installations_saved_total",
        .counter,
        "Installations created or updated."
    )
    package static let installationsSilenced = Metric(
        "installations_silenced_total",
        .counter,
        "Installations invalidated, as they were silent for long."
    )
    package static let installationsExpired = Metric(
        "installations_expired_total",
        .counter,
        "Installations deleted, as they were silent for longer."
    )
}
