-- oldest usable: 1
--
-- Logins: whose tokens prove an identity of an app, and the keys of those who sign them.

-- The keys of a login are at an address, or with it for good.
CREATE TABLE logins (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    issuer text COLLATE "C" NOT NULL,
    audience text COLLATE "C" NOT NULL,
    jwks_url text COLLATE "C",
    jwks json,
    identity_claim text NOT NULL DEFAULT 'sub',
    identity_prefix text COLLATE "C" NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (issuer, audience),
    CHECK ((jwks_url IS NULL) <> (jwks IS NULL)));

CREATE INDEX logins_app ON logins (app);

CREATE INDEX logins_jwks_url ON logins (jwks_url) WHERE jwks_url IS NOT NULL;

-- What was fetched last of each address. Whoever is about to ask it says so here first, so
-- that of all processes one does.
CREATE TABLE jwks (
    url text COLLATE "C" PRIMARY KEY,
    keys json,
    fetched_at timestamptz,
    fresh_until timestamptz,
    asked_at timestamptz,
    answered_at timestamptz);
