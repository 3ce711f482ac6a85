-- What all migrations together leave, as a reference: nothing reads this file but a test, which
-- compares it with a migrated database. After a new migration:
--
--     UPDATE_SCHEMA=1 deploy/test --filter SchemaFileTests
--
-- Partitions are left out, as they are made by the day.

CREATE TABLE app_fields (
    app text COLLATE "C" NOT NULL,
    class text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (app, class, name),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE TABLE app_links (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    app text COLLATE "C" NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, name),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX app_links_app ON public.app_links USING btree (app);
CREATE TABLE app_opens (
    app text COLLATE "C" NOT NULL,
    day date NOT NULL,
    slot smallint NOT NULL,
    opens bigint NOT NULL DEFAULT 0,
    push_opens bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (app, day, slot),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX app_opens_day ON public.app_opens USING btree (day);
CREATE TABLE apps (
    id text COLLATE "C" NOT NULL,
    id_folded text COLLATE "C" NOT NULL,
    app_key_sealed bytea NOT NULL,
    app_key_digest bytea NOT NULL,
    master_key_sealed bytea NOT NULL,
    master_key_digest bytea NOT NULL,
    settings jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    fields_version bigint NOT NULL DEFAULT 0,
    UNIQUE (app_key_digest),
    UNIQUE (id_folded),
    PRIMARY KEY (id)
);
CREATE UNIQUE INDEX apps_secure_unnamed ON public.apps USING btree ((true)) WHERE ((settings -> 'secure-unnamed'::text) = 'true'::jsonb);
CREATE TABLE audit (
    id bigint NOT NULL GENERATED AS IDENTITY,
    app text COLLATE "C" NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    targets text[] NOT NULL DEFAULT '{}'::text[],
    address text,
    status integer NOT NULL,
    detail jsonb NOT NULL DEFAULT '{}'::jsonb,
    at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (id)
);
CREATE INDEX audit_app ON public.audit USING btree (app, at);
CREATE INDEX audit_at ON public.audit USING btree (at);
CREATE INDEX audit_events ON public.audit USING btree (app, at) WHERE (action = ANY (ARRAY['config put'::text, 'POST /console/:app/config/:ns/publish'::text, 'PUT /v1/projects/:project/remoteConfig'::text, 'PUT /v1/projects/:project/namespaces/firebase/remoteConfig'::text, 'PUT /v1/projects/:project/namespaces/firebase-server/remoteConfig'::text, 'config rollback'::text, 'POST /console/:app/config/:ns/versions/:version/rollback'::text, 'POST /v1/projects/:project/remoteConfig:rollback'::text, 'POST /v1/projects/:project/namespaces/firebase/remoteConfig:rollback'::text, 'POST /v1/projects/:project/namespaces/firebase-server/remoteConfig:rollback'::text, 'credentials set'::text, 'POST /console/:app/credentials/:kind'::text, 'credentials remove'::text, 'POST /console/:app/credentials/:kind/remove'::text, 'app set'::text, 'POST /console/:app/settings'::text, 'app rotate-key'::text, 'installations restore'::text, 'POST /console/:app/devices/restore'::text]));
CREATE INDEX audit_targets ON public.audit USING gin (targets);
CREATE TABLE carillon_schema (
    version integer NOT NULL,
    oldest_usable integer NOT NULL,
    applied_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (version)
);
CREATE TABLE carillon_schema_steps (
    version integer NOT NULL,
    step integer NOT NULL,
    PRIMARY KEY (version, step)
);
CREATE TABLE config_announcements (
    app text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    announced_version bigint NOT NULL DEFAULT 0,
    announced_at timestamp with time zone,
    PRIMARY KEY (app, namespace),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE TABLE config_clock (
    revision bigint NOT NULL
);
CREATE TABLE config_fetched (
    app text COLLATE "C" NOT NULL,
    installation text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    fetched_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (app, installation),
    FOREIGN KEY (app, installation) REFERENCES installations(app, object_id) ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE config_heads (
    app text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    last_version bigint NOT NULL DEFAULT 0,
    current_version bigint NOT NULL DEFAULT 0,
    revision bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (app, namespace),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX config_heads_revision ON public.config_heads USING btree (revision);
CREATE TABLE config_pending (
    app text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    update_type text NOT NULL,
    seen_at timestamp with time zone,
    PRIMARY KEY (app, namespace, version),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX config_pending_seen_at ON public.config_pending USING btree (seen_at);
CREATE TABLE config_tokens (
    app text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    read_only boolean NOT NULL DEFAULT false,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    UNIQUE (digest),
    PRIMARY KEY (app, name),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE TABLE config_versions (
    app text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    template json NOT NULL,
    description text NOT NULL DEFAULT ''::text,
    update_type text NOT NULL DEFAULT 'INCREMENTAL_UPDATE'::text,
    update_origin text NOT NULL DEFAULT 'REST_API'::text,
    user_name text NOT NULL DEFAULT SESSION_USER,
    user_email text NOT NULL DEFAULT ((SESSION_USER)::text || '@postgres'::text),
    rollback_source bigint,
    published_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    state smallint NOT NULL DEFAULT 0,
    reason text,
    PRIMARY KEY (app, namespace, version),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE,
    CHECK (((published_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (published_at < '10000-01-01 00:00:00+00'::timestamp with time zone))),
    CHECK (((version >= 1) AND (version <= '9007199254740992'::bigint))),
    CHECK ((namespace = ANY (ARRAY['firebase'::text, 'firebase-server'::text])))
);
CREATE INDEX config_versions_published_at ON public.config_versions USING btree (published_at);
CREATE INDEX config_versions_unchecked ON public.config_versions USING btree (published_at) WHERE (state = 0);
CREATE TRIGGER carillon_note_config AFTER INSERT ON public.config_versions FOR EACH ROW WHEN ((new.state = 0)) EXECUTE FUNCTION carillon_note_config();
CREATE TABLE connection_contents (
    id bigint NOT NULL GENERATED AS IDENTITY,
    push_id uuid NOT NULL,
    digest bytea NOT NULL,
    app text COLLATE "C" NOT NULL,
    event_id text NOT NULL,
    body bytea NOT NULL,
    channels text[] NOT NULL DEFAULT '{}'::text[],
    keep_until timestamp with time zone NOT NULL,
    UNIQUE (push_id, digest),
    PRIMARY KEY (id),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX connection_contents_app ON public.connection_contents USING btree (app);
CREATE INDEX connection_contents_keep_until ON public.connection_contents USING btree (keep_until);
CREATE TABLE connection_counts (
    app text COLLATE "C" NOT NULL,
    slot smallint NOT NULL,
    kept bigint NOT NULL DEFAULT 0,
    received bigint NOT NULL DEFAULT 0,
    displaced bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (app, slot),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE TABLE connection_messages (
    seq bigint NOT NULL GENERATED AS IDENTITY,
    app text COLLATE "C" NOT NULL,
    device bytea NOT NULL,
    id uuid NOT NULL,
    content bigint NOT NULL,
    target text COLLATE "C" NOT NULL,
    collapse text,
    stored_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamp with time zone NOT NULL,
    has_own_expiry boolean NOT NULL,
    channel text COLLATE "C",
    tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
    UNIQUE (device, id),
    PRIMARY KEY (seq),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX connection_messages_app ON public.connection_messages USING btree (app, target);
CREATE INDEX connection_messages_collapse ON public.connection_messages USING btree (device, collapse) WHERE (collapse IS NOT NULL);
CREATE INDEX connection_messages_content ON public.connection_messages USING btree (content);
CREATE INDEX connection_messages_device ON public.connection_messages USING btree (device, seq);
CREATE INDEX connection_messages_expires_at ON public.connection_messages USING btree (expires_at);
CREATE TABLE connection_nodes (
    node text NOT NULL,
    seen_at timestamp with time zone NOT NULL DEFAULT now(),
    open jsonb NOT NULL DEFAULT '{}'::jsonb,
    PRIMARY KEY (node)
);
CREATE TABLE console_logins (
    name text COLLATE "C" NOT NULL,
    app text COLLATE "C" NOT NULL,
    title text NOT NULL,
    issuer text COLLATE "C" NOT NULL,
    client_id text COLLATE "C" NOT NULL,
    client_secret_sealed bytea,
    is_secret_in_header boolean NOT NULL,
    authorization_url text NOT NULL,
    token_url text NOT NULL,
    jwks_url text COLLATE "C" NOT NULL,
    scope text NOT NULL,
    role_claim text NOT NULL,
    roles json NOT NULL,
    name_claim text,
    is_listed boolean NOT NULL,
    stamp uuid NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (name),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX console_logins_app ON public.console_logins USING btree (app);
CREATE INDEX console_logins_jwks_url ON public.console_logins USING btree (jwks_url);
CREATE TABLE credentials (
    app text COLLATE "C" NOT NULL,
    provider text NOT NULL,
    name text NOT NULL DEFAULT ''::text,
    sealed bytea NOT NULL,
    summary jsonb NOT NULL DEFAULT '{}'::jsonb,
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    is_default boolean NOT NULL DEFAULT false,
    PRIMARY KEY (app, provider, name),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE TABLE deliveries (
    day date NOT NULL,
    push_id uuid NOT NULL,
    target text COLLATE "C" NOT NULL,
    app text COLLATE "C" NOT NULL,
    installation_id text COLLATE "C",
    provider text NOT NULL,
    environment text NOT NULL DEFAULT ''::text,
    environment_explicit boolean NOT NULL DEFAULT false,
    token text NOT NULL,
    locale text,
    apns_topic text,
    lane smallint NOT NULL,
    state smallint NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    unanswered integer NOT NULL DEFAULT 0,
    due_at timestamp with time zone NOT NULL DEFAULT now(),
    owner bigint,
    last_status integer,
    last_reason text,
    provider_message_id text,
    expires_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    template_values json,
    badge integer,
    answers json,
    PRIMARY KEY (day, push_id, target)
) PARTITION BY RANGE (day);
CREATE INDEX deliveries_due ON ONLY public.deliveries USING btree (lane, due_at) WHERE ((state = 0) AND (owner IS NULL));
CREATE INDEX deliveries_due_of ON ONLY public.deliveries USING btree (lane, app, provider, due_at) WHERE ((state = 0) AND (owner IS NULL));
CREATE INDEX deliveries_owner ON ONLY public.deliveries USING btree (owner) WHERE ((state = 0) AND (owner IS NOT NULL));
CREATE TABLE delivery_chunks (
    day date NOT NULL,
    push_id uuid NOT NULL,
    first_id text COLLATE "C",
    last_id text COLLATE "C",
    app text COLLATE "C" NOT NULL,
    provider text NOT NULL,
    environment text NOT NULL,
    attempts integer NOT NULL,
    last_status integer,
    targets text[] COLLATE "C" NOT NULL,
    messages text[],
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL
) PARTITION BY RANGE (day);
CREATE INDEX delivery_chunks_push ON ONLY public.delivery_chunks USING btree (push_id, first_id, last_id);
CREATE TABLE dispatchers (
    id bigint NOT NULL GENERATED AS IDENTITY,
    name text NOT NULL,
    started_at timestamp with time zone NOT NULL DEFAULT now(),
    lease_until timestamp with time zone NOT NULL,
    connections text,
    PRIMARY KEY (id)
);
CREATE TABLE erased_names (
    app text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    at timestamp with time zone NOT NULL,
    PRIMARY KEY (app, digest),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX erased_names_at ON public.erased_names USING btree (at);
CREATE TABLE erasure_jobs (
    app text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    id text COLLATE "C" NOT NULL,
    names jsonb NOT NULL,
    counts jsonb NOT NULL DEFAULT '{}'::jsonb,
    cursor_at timestamp with time zone,
    cursor_id uuid,
    started_at timestamp with time zone NOT NULL DEFAULT now(),
    touched_at timestamp with time zone NOT NULL DEFAULT now(),
    wanted_by jsonb NOT NULL DEFAULT '{}'::jsonb,
    PRIMARY KEY (app, kind, id),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE TABLE erasure_key (
    is_only boolean NOT NULL DEFAULT true,
    sealed bytea NOT NULL,
    PRIMARY KEY (is_only),
    CHECK (is_only)
);
CREATE TABLE erasures (
    app text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    id text COLLATE "C" NOT NULL,
    names jsonb NOT NULL,
    counts jsonb NOT NULL DEFAULT '{}'::jsonb,
    cursor_at timestamp with time zone,
    cursor_id uuid,
    started_at timestamp with time zone NOT NULL DEFAULT now(),
    touched_at timestamp with time zone NOT NULL DEFAULT now(),
    wanted_by jsonb NOT NULL DEFAULT '{}'::jsonb,
    PRIMARY KEY (app, kind, id),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE TRIGGER carillon_refuse_erasure BEFORE INSERT ON public.erasures FOR EACH ROW EXECUTE FUNCTION carillon_refuse_erasure();
CREATE TABLE event_keys (
    app text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    push_id uuid NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (app, source, id)
);
CREATE INDEX event_keys_created_at ON public.event_keys USING btree (created_at);
CREATE TRIGGER carillon_known_event BEFORE INSERT ON public.event_keys FOR EACH ROW EXECUTE FUNCTION carillon_known_event();
CREATE TABLE event_pushes (
    id uuid NOT NULL,
    day date NOT NULL,
    app text COLLATE "C" NOT NULL,
    event_source text NOT NULL,
    event_id text NOT NULL,
    request json NOT NULL,
    notes jsonb,
    is_sandbox boolean NOT NULL,
    delivered smallint NOT NULL DEFAULT 1,
    failed smallint NOT NULL DEFAULT 0,
    expired smallint NOT NULL DEFAULT 0,
    suppressed smallint NOT NULL DEFAULT 0,
    in_doubt smallint NOT NULL DEFAULT 0,
    invalid_tokens smallint NOT NULL DEFAULT 0,
    deliveries jsonb NOT NULL,
    failures jsonb,
    expires_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    PRIMARY KEY (id, day)
) PARTITION BY RANGE (day);
CREATE INDEX event_pushes_app ON ONLY public.event_pushes USING btree (app, created_at);
CREATE INDEX event_pushes_event ON ONLY public.event_pushes USING hash (event_id);
CREATE TABLE hub_templates (
    app text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    known_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (app, name),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE TABLE identities (
    app text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    fields jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (app, id),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX identities_fields ON public.identities USING gin (fields jsonb_path_ops);
CREATE TABLE identity_secrets (
    app text COLLATE "C" NOT NULL,
    identity text COLLATE "C" NOT NULL,
    stored text NOT NULL,
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (app, identity),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE TABLE import_parts (
    import bigint NOT NULL,
    number integer NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (import, number),
    FOREIGN KEY (import) REFERENCES import_uploads(import) ON DELETE CASCADE
);
CREATE TABLE import_reasons (
    import bigint NOT NULL,
    reason text COLLATE "C" NOT NULL,
    lines bigint NOT NULL DEFAULT 0,
    examples bigint[] NOT NULL DEFAULT '{}'::bigint[],
    PRIMARY KEY (import, reason),
    FOREIGN KEY (import) REFERENCES imports(id) ON DELETE CASCADE
);
CREATE TABLE import_rejections (
    import bigint NOT NULL,
    line bigint NOT NULL,
    reason text COLLATE "C" NOT NULL,
    PRIMARY KEY (import, line),
    FOREIGN KEY (import) REFERENCES imports(id) ON DELETE CASCADE
);
CREATE TABLE import_uploads (
    import bigint NOT NULL,
    app text COLLATE "C" NOT NULL,
    parts integer NOT NULL DEFAULT 0,
    is_whole boolean NOT NULL DEFAULT false,
    is_gzip boolean NOT NULL DEFAULT false,
    task text,
    runner uuid,
    leased_until timestamp with time zone,
    started_at timestamp with time zone,
    started_records bigint NOT NULL DEFAULT 0,
    dry_run jsonb,
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (import),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE,
    FOREIGN KEY (import) REFERENCES imports(id) ON DELETE CASCADE,
    CHECK ((task = ANY (ARRAY['dry_run'::text, 'run'::text])))
);
CREATE INDEX import_uploads_app ON public.import_uploads USING btree (app);
CREATE INDEX import_uploads_task ON public.import_uploads USING btree (import) WHERE (task IS NOT NULL);
CREATE INDEX import_uploads_updated_at ON public.import_uploads USING btree (updated_at);
CREATE TABLE imports (
    id bigint NOT NULL GENERATED AS IDENTITY,
    app text COLLATE "C" NOT NULL,
    format text NOT NULL,
    file_name text NOT NULL,
    file_bytes bigint,
    fingerprint bytea,
    options jsonb NOT NULL DEFAULT '{}'::jsonb,
    state text NOT NULL,
    failure text,
    runner uuid,
    "position" bigint NOT NULL DEFAULT 0,
    line bigint NOT NULL DEFAULT 1,
    consumed bigint NOT NULL DEFAULT 0,
    records bigint NOT NULL DEFAULT 0,
    imported bigint NOT NULL DEFAULT 0,
    updated bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    rejected bigint NOT NULL DEFAULT 0,
    author text NOT NULL DEFAULT ''::text,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    finished_at timestamp with time zone,
    PRIMARY KEY (id),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE,
    CHECK ((state = ANY (ARRAY['running'::text, 'paused'::text, 'finished'::text, 'failed'::text, 'stopped'::text])))
);
CREATE INDEX imports_app ON public.imports USING btree (app, id);
CREATE INDEX imports_updated_at ON public.imports USING btree (updated_at);
CREATE TABLE ingest_keys (
    stream integer NOT NULL,
    id bytea NOT NULL,
    stored_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, id)
);
CREATE INDEX ingest_keys_stored ON public.ingest_keys USING brin (stored_at) WITH (autosummarize='on');
CREATE TABLE ingest_objects_1 (
    app text COLLATE "C" NOT NULL,
    day date NOT NULL,
    id text COLLATE "C" NOT NULL,
    received_at timestamp with time zone NOT NULL,
    schema_version integer NOT NULL,
    object jsonb NOT NULL
) PARTITION BY RANGE (day);
CREATE INDEX ingest_objects_1_subject_1 ON ONLY public.ingest_objects_1 USING hash (((object ->> 'userId'::text))) WHERE ((object ->> 'userId'::text) IS NOT NULL);
CREATE INDEX ingest_objects_1_subject_2 ON ONLY public.ingest_objects_1 USING hash (((object ->> 'anonymousId'::text))) WHERE ((object ->> 'anonymousId'::text) IS NOT NULL);
CREATE TABLE ingest_objects_2 (
    app text COLLATE "C" NOT NULL,
    day date NOT NULL,
    id text COLLATE "C" NOT NULL,
    received_at timestamp with time zone NOT NULL,
    schema_version integer NOT NULL,
    object jsonb NOT NULL
) PARTITION BY RANGE (day);
CREATE INDEX ingest_objects_2_subject_1 ON ONLY public.ingest_objects_2 USING hash (((object ->> 'userId'::text))) WHERE ((object ->> 'userId'::text) IS NOT NULL);
CREATE INDEX ingest_objects_2_subject_2 ON ONLY public.ingest_objects_2 USING hash (((object ->> 'anonymousId'::text))) WHERE ((object ->> 'anonymousId'::text) IS NOT NULL);
CREATE TABLE ingest_objects_3 (
    app text COLLATE "C" NOT NULL,
    day date NOT NULL,
    id text COLLATE "C" NOT NULL,
    received_at timestamp with time zone NOT NULL,
    schema_version integer NOT NULL,
    object jsonb NOT NULL
) PARTITION BY RANGE (day);
CREATE INDEX ingest_objects_3_subject_1 ON ONLY public.ingest_objects_3 USING hash (((object ->> 'userId'::text))) WHERE ((object ->> 'userId'::text) IS NOT NULL);
CREATE INDEX ingest_objects_3_subject_2 ON ONLY public.ingest_objects_3 USING hash (((object ->> 'anonymousId'::text))) WHERE ((object ->> 'anonymousId'::text) IS NOT NULL);
CREATE TABLE ingest_objects_4 (
    app text COLLATE "C" NOT NULL,
    day date NOT NULL,
    id text COLLATE "C" NOT NULL,
    received_at timestamp with time zone NOT NULL,
    schema_version integer NOT NULL,
    object jsonb NOT NULL
) PARTITION BY RANGE (day);
CREATE INDEX ingest_objects_4_subject_1 ON ONLY public.ingest_objects_4 USING hash (((object ->> 'userId'::text))) WHERE ((object ->> 'userId'::text) IS NOT NULL);
CREATE INDEX ingest_objects_4_subject_2 ON ONLY public.ingest_objects_4 USING hash (((object ->> 'anonymousId'::text))) WHERE ((object ->> 'anonymousId'::text) IS NOT NULL);
CREATE TABLE ingest_objects_5 (
    app text COLLATE "C" NOT NULL,
    day date NOT NULL,
    id text COLLATE "C" NOT NULL,
    received_at timestamp with time zone NOT NULL,
    schema_version integer NOT NULL,
    object jsonb NOT NULL
) PARTITION BY RANGE (day);
CREATE INDEX ingest_objects_5_subject_1 ON ONLY public.ingest_objects_5 USING hash (((object ->> 'userId'::text))) WHERE ((object ->> 'userId'::text) IS NOT NULL);
CREATE INDEX ingest_objects_5_subject_2 ON ONLY public.ingest_objects_5 USING hash (((object ->> 'anonymousId'::text))) WHERE ((object ->> 'anonymousId'::text) IS NOT NULL);
CREATE TABLE ingest_objects_6 (
    app text COLLATE "C" NOT NULL,
    day date NOT NULL,
    id text COLLATE "C" NOT NULL,
    received_at timestamp with time zone NOT NULL,
    schema_version integer NOT NULL,
    object jsonb NOT NULL
) PARTITION BY RANGE (day);
CREATE INDEX ingest_objects_6_subject_1 ON ONLY public.ingest_objects_6 USING hash (((object ->> 'userId'::text))) WHERE ((object ->> 'userId'::text) IS NOT NULL);
CREATE INDEX ingest_objects_6_subject_2 ON ONLY public.ingest_objects_6 USING hash (((object ->> 'anonymousId'::text))) WHERE ((object ->> 'anonymousId'::text) IS NOT NULL);
CREATE TABLE ingest_objects_7 (
    app text COLLATE "C" NOT NULL,
    day date NOT NULL,
    id text COLLATE "C" NOT NULL,
    received_at timestamp with time zone NOT NULL,
    schema_version integer NOT NULL,
    object jsonb NOT NULL
) PARTITION BY RANGE (day);
CREATE INDEX ingest_objects_7_subject_1 ON ONLY public.ingest_objects_7 USING hash (((object ->> 'installationId'::text))) WHERE ((object ->> 'installationId'::text) IS NOT NULL);
CREATE TABLE ingest_objects_8 (
    app text COLLATE "C" NOT NULL,
    day date NOT NULL,
    id text COLLATE "C" NOT NULL,
    received_at timestamp with time zone NOT NULL,
    schema_version integer NOT NULL,
    object jsonb NOT NULL
) PARTITION BY RANGE (day);
CREATE INDEX ingest_objects_8_subject_1 ON ONLY public.ingest_objects_8 USING hash (((object ->> 'installationId'::text))) WHERE ((object ->> 'installationId'::text) IS NOT NULL);
CREATE TABLE ingest_schemas (
    type integer NOT NULL,
    version integer NOT NULL,
    schema json NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (type, version),
    FOREIGN KEY (type) REFERENCES ingest_types(number) ON DELETE CASCADE
);
CREATE TABLE ingest_streams (
    number integer NOT NULL GENERATED AS IDENTITY,
    type integer NOT NULL,
    app text COLLATE "C" NOT NULL,
    view text COLLATE "C",
    columns json NOT NULL DEFAULT '[]'::json,
    is_closed boolean NOT NULL DEFAULT false,
    UNIQUE (type, app),
    UNIQUE (view),
    PRIMARY KEY (number),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE,
    FOREIGN KEY (type) REFERENCES ingest_types(number) ON DELETE CASCADE
);
CREATE INDEX ingest_streams_app ON public.ingest_streams USING btree (app);
CREATE TABLE ingest_types (
    number integer NOT NULL GENERATED AS IDENTITY,
    app text COLLATE "C",
    name text COLLATE "C" NOT NULL,
    version integer NOT NULL DEFAULT 1,
    schema json,
    columns json NOT NULL DEFAULT '[]'::json,
    retention_days integer,
    subjects text[] NOT NULL DEFAULT '{}'::text[],
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (app, name),
    PRIMARY KEY (number),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX ingest_types_folded ON public.ingest_types USING btree (app, lower(name));
CREATE TABLE installations (
    app text COLLATE "C" NOT NULL,
    object_id text COLLATE "C" NOT NULL,
    device_type text NOT NULL,
    provider text,
    token text,
    token_hash bytea,
    environment text NOT NULL DEFAULT ''::text,
    identity text,
    channels text[] NOT NULL DEFAULT '{}'::text[],
    installation_id text,
    badge integer NOT NULL DEFAULT 0,
    time_zone text,
    locale text,
    apns_topic text,
    vendor text,
    device_profile text,
    fields jsonb NOT NULL DEFAULT '{}'::jsonb,
    valid boolean NOT NULL DEFAULT true,
    invalid_reason text,
    token_updated_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    invalidated_at timestamp with time zone,
    seen_on date NOT NULL GENERATED ALWAYS AS (((updated_at AT TIME ZONE 'UTC'::text))::date) STORED,
    channels_absent boolean NOT NULL DEFAULT false,
    badge_absent boolean NOT NULL DEFAULT false,
    template_only boolean NOT NULL DEFAULT false,
    PRIMARY KEY (app, object_id),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE,
    CHECK (((token IS NULL) OR (provider IS NOT NULL))),
    CHECK (((token_hash IS NULL) = ((token IS NULL) OR template_only))) NOT VALID
);
CREATE INDEX installations_channels ON public.installations USING gin (channels) WITH (gin_pending_list_limit='256');
CREATE INDEX installations_fields ON public.installations USING gin (fields jsonb_path_ops) WITH (gin_pending_list_limit='256');
CREATE INDEX installations_hub_expiry ON public.installations USING btree (((((fields -> '_azure'::text) -> 'expiresAt'::text))::numeric)) WHERE (valid AND (jsonb_typeof(((fields -> '_azure'::text) -> 'expiresAt'::text)) = 'number'::text));
CREATE INDEX installations_identity ON public.installations USING btree (app, identity) WHERE (identity IS NOT NULL);
CREATE INDEX installations_invalidated_at ON public.installations USING btree (invalidated_at) WHERE (invalidated_at IS NOT NULL);
CREATE INDEX installations_seen ON public.installations USING btree (((app || ''::text)), valid, seen_on);
CREATE INDEX installations_template_token ON public.installations USING btree (app, hashtextextended(token, (0)::bigint)) WHERE (template_only AND (token IS NOT NULL));
CREATE INDEX installations_unrouted ON public.installations USING btree (app, hashtextextended((fields ->> 'deviceToken'::text), (0)::bigint)) WHERE ((token_hash IS NULL) AND ((fields ->> 'deviceToken'::text) IS NOT NULL));
CREATE TRIGGER carillon_void_reader AFTER UPDATE OF identity ON public.installations FOR EACH ROW WHEN ((old.identity IS DISTINCT FROM new.identity)) EXECUTE FUNCTION carillon_void_reader();
CREATE UNIQUE INDEX installations_installation_id ON public.installations USING btree (app, installation_id) WHERE (installation_id IS NOT NULL);
CREATE UNIQUE INDEX installations_token ON public.installations USING btree (app, provider, token_hash, environment) WHERE (token_hash IS NOT NULL);
CREATE TABLE jwks (
    url text COLLATE "C" NOT NULL,
    keys json,
    fetched_at timestamp with time zone,
    fresh_until timestamp with time zone,
    asked_at timestamp with time zone,
    answered_at timestamp with time zone,
    PRIMARY KEY (url)
);
CREATE TABLE logins (
    app text COLLATE "C" NOT NULL,
    issuer text COLLATE "C" NOT NULL,
    audience text COLLATE "C" NOT NULL,
    jwks_url text COLLATE "C",
    jwks json,
    identity_claim text NOT NULL DEFAULT 'sub'::text,
    identity_prefix text COLLATE "C" NOT NULL DEFAULT ''::text,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (issuer, audience),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE,
    CHECK (((jwks_url IS NULL) <> (jwks IS NULL)))
);
CREATE INDEX logins_app ON public.logins USING btree (app);
CREATE INDEX logins_jwks_url ON public.logins USING btree (jwks_url) WHERE (jwks_url IS NOT NULL);
CREATE TABLE outbox (
    id bigint NOT NULL GENERATED AS IDENTITY,
    kafka_topic text NOT NULL,
    key bytea,
    value bytea NOT NULL,
    headers jsonb NOT NULL DEFAULT '[]'::jsonb,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    due_at timestamp with time zone NOT NULL DEFAULT now(),
    refusals integer NOT NULL DEFAULT 0,
    order_key text COLLATE "C",
    queue text COLLATE "C" NOT NULL DEFAULT ''::text,
    PRIMARY KEY (id)
);
CREATE INDEX outbox_due ON public.outbox USING btree (due_at, id);
CREATE INDEX outbox_order ON public.outbox USING btree (order_key, id) WHERE (order_key IS NOT NULL);
CREATE INDEX outbox_queues ON public.outbox USING btree (queue, due_at, id);
CREATE TABLE push_drafts (
    id uuid NOT NULL,
    app text COLLATE "C" NOT NULL,
    author text NOT NULL,
    form jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (id),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX push_drafts_app ON public.push_drafts USING btree (app, updated_at);
CREATE INDEX push_drafts_updated_at ON public.push_drafts USING btree (updated_at);
CREATE TABLE push_figure_minutes (
    at timestamp with time zone NOT NULL,
    replica bigint NOT NULL,
    PRIMARY KEY (at, replica)
);
CREATE TABLE push_figures (
    app text COLLATE "C" NOT NULL,
    push_id uuid NOT NULL,
    minutes smallint NOT NULL,
    at timestamp with time zone NOT NULL,
    provider text COLLATE "C" NOT NULL,
    replica bigint NOT NULL,
    delivered integer NOT NULL,
    failed integer NOT NULL,
    expired integer NOT NULL,
    suppressed integer NOT NULL,
    in_doubt integer NOT NULL,
    latency integer[] NOT NULL,
    received integer NOT NULL DEFAULT 0,
    opened integer NOT NULL DEFAULT 0,
    PRIMARY KEY (app, push_id, minutes, at, provider, replica),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX push_figures_at ON public.push_figures USING btree (at);
CREATE TABLE push_receipts (
    app text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    kind smallint NOT NULL,
    who text COLLATE "C" NOT NULL,
    at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (app, target, kind, who)
);
CREATE INDEX push_receipts_at ON public.push_receipts USING brin (at) WITH (autosummarize='on');
CREATE INDEX push_receipts_who ON public.push_receipts USING btree (app, who);
CREATE TABLE pushes (
    id uuid NOT NULL,
    app text COLLATE "C" NOT NULL,
    event_source text NOT NULL,
    event_id text NOT NULL,
    request json NOT NULL,
    status text NOT NULL,
    error text,
    notes jsonb NOT NULL DEFAULT '{}'::jsonb,
    lane smallint NOT NULL DEFAULT 0,
    targeted bigint NOT NULL DEFAULT 0,
    delivered bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    suppressed bigint NOT NULL DEFAULT 0,
    in_doubt bigint NOT NULL DEFAULT 0,
    pending bigint NOT NULL DEFAULT 0,
    invalid_tokens bigint NOT NULL DEFAULT 0,
    cursor text,
    planned_until timestamp with time zone,
    planner bigint,
    expires_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    finished_at timestamp with time zone,
    environment text NOT NULL DEFAULT 'production'::text,
    open_shards integer NOT NULL DEFAULT 0,
    release_at timestamp with time zone,
    accepted_at timestamp with time zone,
    schedule_id bigint,
    is_planning boolean NOT NULL GENERATED ALWAYS AS ((status = 'planning'::text)) STORED,
    is_waiting boolean NOT NULL GENERATED ALWAYS AS (((status = ANY (ARRAY['queued'::text, 'scheduled'::text])) AND (release_at IS NOT NULL))) STORED,
    hidden_at timestamp with time zone,
    is_conditional boolean,
    failures jsonb,
    confirmed integer NOT NULL DEFAULT 0,
    deliveries jsonb,
    PRIMARY KEY (id)
);
CREATE INDEX pushes_app ON public.pushes USING btree (app, created_at);
CREATE INDEX pushes_created_at ON public.pushes USING btree (created_at);
CREATE INDEX pushes_event ON public.pushes USING btree (event_id);
CREATE INDEX pushes_label ON public.pushes USING btree (app, ((notes ->> 'notificationId'::text))) WHERE ((notes ->> 'notificationId'::text) IS NOT NULL);
CREATE INDEX pushes_packed ON public.pushes USING btree (created_at) WHERE (deliveries IS NOT NULL);
CREATE INDEX pushes_planner ON public.pushes USING btree (planner) WHERE (planner IS NOT NULL);
CREATE INDEX pushes_planning_fair ON public.pushes USING btree (app, lane, created_at) WHERE is_planning;
CREATE INDEX pushes_release ON public.pushes USING btree (release_at) WHERE is_waiting;
CREATE UNIQUE INDEX pushes_schedule ON public.pushes USING btree (schedule_id) WHERE (schedule_id IS NOT NULL);
CREATE TABLE realm_figures (
    app text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    changed_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (app, kind, name)
);
CREATE TABLE retired_keys (
    app text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    digest bytea NOT NULL,
    sealed bytea NOT NULL,
    valid_until timestamp with time zone NOT NULL,
    PRIMARY KEY (app, kind, digest),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE,
    CHECK ((kind = ANY (ARRAY['app'::text, 'master'::text])))
);
CREATE INDEX retired_keys_valid_until ON public.retired_keys USING btree (valid_until);
CREATE UNIQUE INDEX retired_keys_digest ON public.retired_keys USING btree (digest) WHERE (kind = 'app'::text);
CREATE TABLE saved_filters (
    app text COLLATE "C" NOT NULL,
    page text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    filter jsonb NOT NULL,
    author text NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (app, page, name),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE TABLE secure_keys (
    app text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    identity text COLLATE "C" NOT NULL,
    payload text COLLATE "C" NOT NULL,
    push_id uuid NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (app, key),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX secure_keys_created_at ON public.secure_keys USING btree (created_at);
CREATE INDEX secure_keys_identity ON public.secure_keys USING btree (app, identity);
CREATE TABLE secure_payloads (
    id text COLLATE "C" NOT NULL,
    app text COLLATE "C" NOT NULL,
    identity text COLLATE "C" NOT NULL,
    push_id uuid NOT NULL,
    content bytea,
    is_sealed boolean NOT NULL,
    read_once boolean NOT NULL,
    is_kept boolean NOT NULL DEFAULT true,
    created_at timestamp with time zone NOT NULL DEFAULT date_trunc('milliseconds'::text, now()),
    expires_at timestamp with time zone NOT NULL,
    ends_at timestamp with time zone NOT NULL,
    read_at timestamp with time zone,
    deleted_at timestamp with time zone,
    PRIMARY KEY (id),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE,
    CHECK (((content IS NULL) OR (is_kept AND (NOT is_sealed))))
);
CREATE INDEX secure_payloads_app ON public.secure_payloads USING btree (app, created_at, id);
CREATE INDEX secure_payloads_identity ON public.secure_payloads USING btree (app, identity, created_at, id);
CREATE INDEX secure_payloads_kept ON public.secure_payloads USING btree (ends_at) WHERE is_kept;
CREATE INDEX secure_payloads_over ON public.secure_payloads USING btree (ends_at) WHERE (NOT is_kept);
CREATE TABLE secure_readers (
    app text COLLATE "C" NOT NULL,
    installation text COLLATE "C" NOT NULL,
    identity text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    sealing_key bytea,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    UNIQUE (digest),
    PRIMARY KEY (app, installation),
    FOREIGN KEY (app, installation) REFERENCES installations(app, object_id) ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE INDEX secure_readers_sealing ON public.secure_readers USING btree (app, identity) WHERE (sealing_key IS NOT NULL);
CREATE TABLE secure_reads (
    payload text COLLATE "C" NOT NULL,
    app text COLLATE "C" NOT NULL,
    installation text COLLATE "C" NOT NULL,
    read_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (payload, installation),
    FOREIGN KEY (payload) REFERENCES secure_payloads(id) ON DELETE CASCADE
);
CREATE INDEX secure_reads_installation ON public.secure_reads USING btree (app, installation) WHERE (installation <> ''::text);
CREATE TABLE secure_sealed (
    payload text COLLATE "C" NOT NULL,
    app text COLLATE "C" NOT NULL,
    installation text COLLATE "C" NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (payload, installation),
    FOREIGN KEY (payload) REFERENCES secure_payloads(id) ON DELETE CASCADE
);
CREATE INDEX secure_sealed_installation ON public.secure_sealed USING btree (app, installation);
CREATE TABLE service_instances (
    id uuid NOT NULL,
    service text COLLATE "C" NOT NULL,
    host text NOT NULL,
    version text NOT NULL,
    started_at timestamp with time zone NOT NULL DEFAULT now(),
    seen_at timestamp with time zone NOT NULL DEFAULT now(),
    state jsonb NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE shards (
    push_id uuid NOT NULL,
    shard integer NOT NULL,
    app text COLLATE "C" NOT NULL,
    day date NOT NULL,
    pushed_at timestamp with time zone NOT NULL,
    lower_id text COLLATE "C" NOT NULL DEFAULT ''::text,
    upper_id text COLLATE "C",
    is_sparse boolean NOT NULL DEFAULT false,
    is_paced boolean NOT NULL DEFAULT false,
    zones text[],
    cursor text COLLATE "C",
    expected integer NOT NULL,
    recorded integer NOT NULL DEFAULT 0,
    cancelled integer NOT NULL DEFAULT 0,
    due_at timestamp with time zone NOT NULL DEFAULT now(),
    owner bigint,
    finished boolean NOT NULL DEFAULT false,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    updated_at timestamp with time zone NOT NULL DEFAULT now(),
    zones_excluded boolean NOT NULL DEFAULT false,
    expires_at timestamp with time zone,
    prepared text COLLATE "C",
    members text[] COLLATE "C",
    lane smallint NOT NULL DEFAULT 1,
    PRIMARY KEY (push_id, shard),
    FOREIGN KEY (push_id) REFERENCES pushes(id) ON DELETE CASCADE
);
CREATE INDEX shards_day ON public.shards USING btree (day) WHERE (NOT finished);
CREATE INDEX shards_direct ON public.shards USING btree (app, pushed_at, push_id, shard) WHERE ((NOT finished) AND (owner IS NULL) AND (lane = 0));
CREATE INDEX shards_due ON public.shards USING btree (due_at) WHERE ((NOT finished) AND (owner IS NULL));
CREATE INDEX shards_owner ON public.shards USING btree (owner) WHERE (owner IS NOT NULL);
CREATE INDEX shards_waiting ON public.shards USING btree (app, pushed_at, push_id, shard) WHERE ((NOT finished) AND (owner IS NULL));
CREATE TABLE sync_bulk (
    pool bigint NOT NULL,
    status text NOT NULL,
    cursor bigint NOT NULL DEFAULT 0,
    told bigint NOT NULL DEFAULT 0,
    failure text,
    started_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamp with time zone,
    PRIMARY KEY (pool),
    FOREIGN KEY (pool) REFERENCES sync_pools(id) ON DELETE CASCADE
);
CREATE TABLE sync_datasets (
    id bigint NOT NULL GENERATED AS IDENTITY,
    pool bigint NOT NULL,
    identity text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    is_there boolean NOT NULL DEFAULT true,
    sync_count bigint NOT NULL DEFAULT 0,
    deleted_count bigint NOT NULL DEFAULT 0,
    records integer NOT NULL DEFAULT 0,
    bytes integer NOT NULL DEFAULT 0,
    tombstone_bytes integer NOT NULL DEFAULT 0,
    modified_by text,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    modified_at timestamp with time zone NOT NULL DEFAULT now(),
    UNIQUE (pool, identity, name),
    PRIMARY KEY (id),
    FOREIGN KEY (pool) REFERENCES sync_pools(id) ON DELETE CASCADE
);
CREATE TABLE sync_devices (
    id bigint NOT NULL GENERATED AS IDENTITY,
    pool bigint NOT NULL,
    identity text COLLATE "C" NOT NULL,
    device_id text COLLATE "C" NOT NULL,
    platform text NOT NULL,
    app text COLLATE "C" NOT NULL,
    installation text COLLATE "C" NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    registered_at timestamp with time zone NOT NULL DEFAULT now(),
    UNIQUE (pool, identity, device_id),
    PRIMARY KEY (id),
    FOREIGN KEY (app, installation) REFERENCES installations(app, object_id) ON DELETE CASCADE,
    FOREIGN KEY (pool) REFERENCES sync_pools(id) ON DELETE CASCADE
);
CREATE INDEX sync_devices_installation ON public.sync_devices USING btree (app, installation);
CREATE TABLE sync_pools (
    id bigint NOT NULL GENERATED AS IDENTITY,
    name text COLLATE "C" NOT NULL,
    app text COLLATE "C" NOT NULL,
    is_linked boolean NOT NULL DEFAULT true,
    push_sync json,
    is_pushing boolean NOT NULL DEFAULT false,
    streams json,
    sessions bigint NOT NULL DEFAULT 0,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    modified_at timestamp with time zone NOT NULL DEFAULT now(),
    UNIQUE (name),
    PRIMARY KEY (id),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE
);
CREATE INDEX sync_pools_app ON public.sync_pools USING btree (app, name);
CREATE TABLE sync_records (
    dataset bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text,
    sync_count bigint NOT NULL,
    modified_at timestamp with time zone NOT NULL,
    modified_by text,
    device_modified_at timestamp with time zone,
    FOREIGN KEY (dataset) REFERENCES sync_datasets(id) ON DELETE CASCADE
);
CREATE INDEX sync_records_count ON public.sync_records USING btree (dataset, sync_count);
CREATE INDEX sync_records_key ON public.sync_records USING btree (dataset, hashtextextended(key, (0)::bigint));
CREATE INDEX sync_records_removed ON public.sync_records USING btree (modified_at) WHERE (value IS NULL);
CREATE TABLE sync_subscriptions (
    dataset bigint NOT NULL,
    device bigint NOT NULL,
    told bigint NOT NULL DEFAULT 0,
    told_at timestamp with time zone,
    PRIMARY KEY (dataset, device),
    FOREIGN KEY (dataset) REFERENCES sync_datasets(id) ON DELETE CASCADE,
    FOREIGN KEY (device) REFERENCES sync_devices(id) ON DELETE CASCADE
);
CREATE INDEX sync_subscriptions_device ON public.sync_subscriptions USING btree (device);
CREATE TABLE sync_windows (
    dataset bigint NOT NULL,
    sync_count bigint NOT NULL,
    changes integer NOT NULL,
    writer text,
    opened_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    due_at timestamp with time zone NOT NULL,
    PRIMARY KEY (dataset),
    FOREIGN KEY (dataset) REFERENCES sync_datasets(id) ON DELETE CASCADE
);
CREATE INDEX sync_windows_due ON public.sync_windows USING btree (due_at);
CREATE TABLE test_devices (
    app text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    installation text COLLATE "C" NOT NULL,
    author text NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    UNIQUE (app, installation),
    PRIMARY KEY (app, name),
    FOREIGN KEY (app) REFERENCES apps(id) ON DELETE CASCADE,
    FOREIGN KEY (app, installation) REFERENCES installations(app, object_id) ON UPDATE CASCADE ON DELETE CASCADE
);
-- VIEW all_deliveries (
--     day date,
--     push_id uuid,
--     target text,
--     app text,
--     installation_id text,
--     provider text,
--     environment text,
--     token text,
--     locale text,
--     apns_topic text,
--     state smallint,
--     attempts integer,
--     owner bigint,
--     last_status integer,
--     last_reason text,
--     provider_message_id text,
--     template_values json,
--     badge integer,
--     created_at timestamp with time zone,
--     updated_at timestamp with time zone,
--     first_id text,
--     last_id text
-- )
-- VIEW all_pushes (
--     id uuid,
--     app text,
--     event_source text,
--     event_id text,
--     request json,
--     status text,
--     error text,
--     notes jsonb,
--     lane smallint,
--     targeted bigint,
--     delivered bigint,
--     failed bigint,
--     expired bigint,
--     suppressed bigint,
--     in_doubt bigint,
--     pending bigint,
--     invalid_tokens bigint,
--     confirmed integer,
--     failures jsonb,
--     environment text,
--     expires_at timestamp with time zone,
--     release_at timestamp with time zone,
--     schedule_id bigint,
--     is_waiting boolean,
--     accepted_at timestamp with time zone,
--     created_at timestamp with time zone,
--     updated_at timestamp with time zone,
--     finished_at timestamp with time zone,
--     hidden_at timestamp with time zone
-- )
CREATE OR REPLACE FUNCTION public.carillon_arc(a point, b point)
 RETURNS double precision
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE STRICT
AS $function$
DECLARE
    x float8 := sind((a[0] - b[0]) / 2);
    y float8 := sind((a[1] - b[1]) / 2);
BEGIN
    RETURN 2 * asin(least(1, sqrt(y * y + cosd(a[1]) * cosd(b[1]) * x * x)));
END
$function$
;
CREATE OR REPLACE FUNCTION public.carillon_bigint(value jsonb)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE STRICT
AS $function$
    SELECT CASE WHEN jsonb_typeof(value) = 'number' THEN
        CASE WHEN value::numeric = trunc(value::numeric)
            AND value::numeric BETWEEN -9223372036854775808 AND 9223372036854775807
        THEN value::numeric::bigint END END
$function$
;
CREATE OR REPLACE FUNCTION public.carillon_boolean(value jsonb)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE STRICT
AS $function$
    SELECT CASE WHEN jsonb_typeof(value) = 'boolean' THEN value::boolean END
$function$
;
CREATE OR REPLACE FUNCTION public.carillon_double(value jsonb)
 RETURNS double precision
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE STRICT
AS $function$
    SELECT CASE WHEN jsonb_typeof(value) = 'number' THEN
        CASE WHEN abs(value::numeric) < 5e-324::numeric THEN 0
            WHEN abs(value::numeric) <= 1.7976931348623157e308::numeric
            THEN value::numeric::double precision END END
$function$
;
CREATE OR REPLACE FUNCTION public.carillon_instant(value jsonb)
 RETURNS bigint
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE STRICT
AS $function$
DECLARE
    part text[];
    year int;
    month int;
    day int;
    days int;
    shift int := 0;
BEGIN
    IF jsonb_typeof(value) <> 'object' OR value->>'__type' IS DISTINCT FROM 'Date' THEN
        RETURN NULL;
    END IF;
    part := regexp_match(value->>'iso',
        '^([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})'
        '(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?(?:[Zz]|([+-])([0-9]{2}):?([0-9]{2}))$');
    IF part IS NULL THEN RETURN NULL; END IF;
    year := part[1]::int;
    month := part[2]::int;
    day := part[3]::int;
    IF year = 0 OR month NOT BETWEEN 1 AND 12 THEN RETURN NULL; END IF;
    days := CASE
        WHEN month IN (4, 6, 9, 11) THEN 30
        WHEN month <> 2 THEN 31
        WHEN year % 4 = 0 AND (year % 100 <> 0 OR year % 400 = 0) THEN 29
        ELSE 28 END;
    IF day NOT BETWEEN 1 AND days OR part[4]::int > 23 OR part[5]::int > 59
        OR part[6]::int > 60 OR part[9]::int > 23 OR part[10]::int > 59
    THEN
        RETURN NULL;
    END IF;
    IF part[8] IS NOT NULL THEN
        shift := (part[9]::int * 60 + part[10]::int)
            * CASE part[8] WHEN '-' THEN -1 ELSE 1 END;
    END IF;
    RETURN ((make_date(year, month, day) - date '1970-01-01')::bigint * 86400
        + part[4]::int * 3600 + (part[5]::int - shift) * 60
        + coalesce(part[6]::int, 0)) * 1000
        + coalesce(left(rpad(part[7], 3, '0'), 3)::int, 0);
END
$function$
;
CREATE OR REPLACE FUNCTION public.carillon_known_event()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO '$user', 'public'
AS $function$
BEGIN
    IF EXISTS (SELECT FROM event_pushes WHERE id = NEW.push_id) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END
$function$
;
CREATE OR REPLACE FUNCTION public.carillon_note_config()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO '$user', 'public'
AS $function$
BEGIN
    INSERT INTO config_heads AS h (app, namespace, last_version)
    VALUES (NEW.app, NEW.namespace, NEW.version)
    ON CONFLICT (app, namespace) DO UPDATE
        SET last_version = greatest(h.last_version, EXCLUDED.last_version);
    PERFORM pg_notify('carillon_config_rows', '');
    RETURN NULL;
END
$function$
;
CREATE OR REPLACE FUNCTION public.carillon_point(value jsonb)
 RETURNS point
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE STRICT
AS $function$
DECLARE
    latitude numeric;
    longitude numeric;
BEGIN
    IF jsonb_typeof(value) <> 'object'
        OR value->>'__type' IS DISTINCT FROM 'GeoPoint'
        OR jsonb_typeof(value->'latitude') IS DISTINCT FROM 'number'
        OR jsonb_typeof(value->'longitude') IS DISTINCT FROM 'number'
    THEN
        RETURN NULL;
    END IF;
    latitude := (value->'latitude')::numeric;
    longitude := (value->'longitude')::numeric;
    IF abs(latitude) > 90 OR abs(longitude) > 180 THEN RETURN NULL; END IF;
    RETURN point(round(longitude, 9)::float8, round(latitude, 9)::float8);
END
$function$
;
CREATE OR REPLACE FUNCTION public.carillon_publish_config(app text, namespace text, template json, description text DEFAULT ''::text)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO '$user', 'public'
AS $function$
#variable_conflict use_column
DECLARE number bigint;
BEGIN
    SELECT coalesce(max(known.version), 0) + 1 INTO number
    FROM (SELECT a.announced_version AS version FROM config_announcements a
        WHERE a.app = $1 AND a.namespace = $2
        UNION ALL
        SELECT p.version FROM config_pending p
        WHERE p.app = $1 AND p.namespace = $2) known;
    INSERT INTO config_heads AS h (app, namespace, last_version)
    VALUES ($1, $2, number)
    ON CONFLICT (app, namespace) DO UPDATE
        SET last_version = greatest(h.last_version + 1, EXCLUDED.last_version)
    RETURNING h.last_version INTO number;
    INSERT INTO config_versions (app, namespace, version, template, description)
    VALUES ($1, $2, number, $3, coalesce($4, ''));
    RETURN number;
END
$function$
;
CREATE OR REPLACE FUNCTION public.carillon_refuse_erasure()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'this version of Carillon cannot erase what newer services store'
        USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Upgrade the program that erases, and repeat the erasure.';
END
$function$
;
CREATE OR REPLACE FUNCTION public.carillon_text(value jsonb)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE STRICT
AS $function$
    SELECT CASE jsonb_typeof(value) WHEN 'string' THEN value #>> '{}' END
$function$
;
CREATE OR REPLACE FUNCTION public.carillon_timestamptz(value jsonb)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE STRICT
AS $function$
DECLARE
    told text;
    parts text[];
    same_year integer;
BEGIN
    IF jsonb_typeof(value) <> 'string' THEN RETURN NULL; END IF;
    told := value #>> '{}';
    IF told ~ '^(?!0000)[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)[Tt ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,30})?(?:[Zz]|[+-](?:0[0-9]|1[0-5]):[0-5][0-9])$' THEN RETURN upper(told)::timestamptz; END IF;
    parts := regexp_match(told, '^([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)(?:[.]([0-9]+))?(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))$');
    IF parts IS NULL THEN RETURN NULL; END IF;
    -- One of the years 1 to 400 that has the same days.
    same_year := (parts[1]::integer + 399) % 400 + 1;
    IF parts[3]::integer > extract(day FROM
        make_date(same_year, parts[2]::integer, 1) + interval '1 month - 1 day')
    THEN RETURN NULL; END IF;
    -- Postgres calls the year 0000 the first before Christ, and gives it the number -1.
    RETURN (make_timestamp(CASE parts[1] WHEN '0000' THEN -1 ELSE parts[1]::integer END,
            parts[2]::integer, parts[3]::integer, parts[4]::integer, parts[5]::integer, 0)
        + make_interval(secs =>
            (parts[6] || '.' || coalesce(left(parts[7], 9), '0'))::double precision)
        - make_interval(mins => (coalesce(parts[8], '+') || '1')::integer
            * (coalesce(parts[9]::integer, 0) * 60 + coalesce(parts[10]::integer, 0))))
        AT TIME ZONE 'UTC';
END
$function$
;
CREATE OR REPLACE FUNCTION public.carillon_void_reader()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO '$user', 'public'
AS $function$
BEGIN
    DELETE FROM secure_readers
    WHERE app = NEW.app AND installation IN (OLD.object_id, NEW.object_id);
    RETURN NULL;
END
$function$
;
