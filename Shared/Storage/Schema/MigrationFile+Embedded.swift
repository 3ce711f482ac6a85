extension MigrationFile {
    /// The files of `Migrations`, in their order. The build embeds the bytes of each file, but no
    /// list of the files, so a test compares this list with the folder.
    ///
    /// The literals of 63 KB take 4 s to compile in a debug build, when a file changes, and 3 s in a release build.
    static let embedded = resources.map { MigrationFile($0.name, $0.text) }

    private static let resources: [(name: String, text: [UInt8])] = [
        ("0001_apps_pushes_deliveries", PackageResources._001_apps_pushes_deliveries_sql),
        ("0002_push_environment", PackageResources._002_push_environment_sql),
        ("0003_outbox_due", PackageResources._003_outbox_due_sql),
        ("0004_shards", PackageResources._004_shards_sql),
        ("0005_scheduled_pushes", PackageResources._005_scheduled_pushes_sql),
        ("0006_template_values", PackageResources._006_template_values_sql),
        ("0007_badges", PackageResources._007_badges_sql),
        ("0008_planning_columns", PackageResources._008_planning_columns_sql),
        ("0009_fields_and_identities", PackageResources._009_fields_and_identities_sql),
        ("0010_push_labels", PackageResources._010_push_labels_sql),
        ("0011_shard_members", PackageResources._011_shard_members_sql),
        ("0012_installation_life", PackageResources._012_installation_life_sql),
        ("0013_hub_templates", PackageResources._013_hub_templates_sql),
        ("0014_keys_audit_erasures", PackageResources._014_keys_audit_erasures_sql),
        ("0015_erasure_resumption", PackageResources._015_erasure_resumption_sql),
        ("0016_default_credential", PackageResources._016_default_credential_sql),
        ("0017_fair_planning", PackageResources._017_fair_planning_sql),
        ("0018_field_types", PackageResources._018_field_types_sql),
        ("0019_dispatcher_connections", PackageResources._019_dispatcher_connections_sql),
        ("0020_failure_counts", PackageResources._020_failure_counts_sql),
        ("0021_fair_retries", PackageResources._021_fair_retries_sql),
        ("0022_erased_names", PackageResources._022_erased_names_sql),
        ("0023_remote_config", PackageResources._023_remote_config_sql),
        ("0024_logins", PackageResources._024_logins_sql),
        ("0025_secure_payloads", PackageResources._025_secure_payloads_sql),
        ("0026_event_pushes", PackageResources._026_event_pushes_sql),
        ("0027_delivery_chunks", PackageResources._027_delivery_chunks_sql),
        ("0028_event_hash_index", PackageResources._028_event_hash_index_sql),
        ("0029_push_sync", PackageResources._029_push_sync_sql),
        ("0030_ingest", PackageResources._030_ingest_sql),
        ("0031_erasure_jobs", PackageResources._031_erasure_jobs_sql),
        ("0032_ingest_times", PackageResources._032_ingest_times_sql),
        ("0033_template_registrations", PackageResources._033_template_registrations_sql),
        ("0034_event_push_defaults", PackageResources._034_event_push_defaults_sql),
        ("0035_packed_pushes", PackageResources._035_packed_pushes_sql),
        ("0036_shards_lane", PackageResources._036_shards_lane_sql),
        ("0037_connections", PackageResources._037_connections_sql),
        ("0038_push_drafts", PackageResources._038_push_drafts_sql),
        ("0039_delivery_answers", PackageResources._039_delivery_answers_sql),
        ("0040_imports", PackageResources._040_imports_sql),
        ("0041_outbox_queues", PackageResources._041_outbox_queues_sql),
        ("0042_console_logins", PackageResources._042_console_logins_sql),
        ("0043_import_uploads", PackageResources._043_import_uploads_sql),
        ("0044_push_figures", PackageResources._044_push_figures_sql),
        ("0045_service_instances", PackageResources._045_service_instances_sql),
        ("0046_chart_receipts_and_events", PackageResources._046_chart_receipts_and_events_sql),
        (
            "0047_test_devices_saved_filters",
            PackageResources._047_test_devices_saved_filters_sql
        ),
        ("0048_realm_figures", PackageResources._048_realm_figures_sql),
    ]
}
