-- oldest usable: 1
--
-- OIDC issuers through which operators sign in to an app's console.

CREATE TABLE console_logins (
    -- A segment of the console's addresses.
    name text COLLATE "C" PRIMARY KEY,
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    title text NOT NULL,
    issuer text COLLATE "C" NOT NULL,
    client_id text COLLATE "C" NOT NULL,
    -- NULL: a public client.
    client_secret_sealed bytea,
    -- Whether the secret is sent by HTTP Basic, or in the form.
    is_secret_in_header boolean NOT NULL,
    authorization_url text NOT NULL,
    token_url text NOT NULL,
    jwks_url text COLLATE "C" NOT NULL,
    scope text NOT NULL,
    role_claim text NOT NULL,
    -- An object: the role of each value of the claim.
    roles json NOT NULL,
    -- NULL: the verified email, else sub.
    name_claim text,
    is_listed boolean NOT NULL,
    -- New each time the login is set. Sessions carry it, so that they end then.
    stamp uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now());

CREATE INDEX console_logins_app ON console_logins (app);

CREATE INDEX console_logins_jwks_url ON console_logins (jwks_url);
