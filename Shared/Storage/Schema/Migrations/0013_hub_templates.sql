-- oldest usable: 1
--
-- The names of the templates that Azure's clients gave their devices, and the devices that are to
-- be sent nothing after a time that such a client named.

CREATE TABLE hub_templates (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    name text COLLATE "C" NOT NULL,
    known_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, name));

CREATE INDEX installations_hub_expiry
    ON installations (((fields->'_azure'->'expiresAt')::numeric))
    WHERE valid AND jsonb_typeof(fields->'_azure'->'expiresAt') = 'number';
