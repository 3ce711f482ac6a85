-- oldest usable: 1
--
-- Devices' reports by the minute and by the hour, in rows with the provider ''. The version before
-- does not write them, and leaves rows of an unknown provider out of its charts.

ALTER TABLE push_figures ADD COLUMN received integer NOT NULL DEFAULT 0,
    ADD COLUMN opened integer NOT NULL DEFAULT 0;

-- The acts that charts mark, among the entries of millions of calls. AuditEvent has the same list.
CREATE INDEX audit_events ON audit (app, at) WHERE action IN (
    'config put', 'POST /console/:app/config/:ns/publish',
    'PUT /v1/projects/:project/remoteConfig',
    'PUT /v1/projects/:project/namespaces/firebase/remoteConfig',
    'PUT /v1/projects/:project/namespaces/firebase-server/remoteConfig',
    'config rollback', 'POST /console/:app/config/:ns/versions/:version/rollback',
    'POST /v1/projects/:project/remoteConfig:rollback',
    'POST /v1/projects/:project/namespaces/firebase/remoteConfig:rollback',
    'POST /v1/projects/:project/namespaces/firebase-server/remoteConfig:rollback',
    'credentials set', 'POST /console/:app/credentials/:kind',
    'credentials remove', 'POST /console/:app/credentials/:kind/remove',
    'app set', 'POST /console/:app/settings', 'app rotate-key',
    'installations restore', 'POST /console/:app/devices/restore');
