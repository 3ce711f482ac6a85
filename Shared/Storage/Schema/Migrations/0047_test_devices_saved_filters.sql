-- oldest usable: 1
--
-- What people of an app keep in the console: devices for tests by a name, and filters of lists by a
-- name. Both are few: the stores bound them.

CREATE TABLE test_devices (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    name text COLLATE "C" NOT NULL,
    -- The installation's object id.
    installation text COLLATE "C" NOT NULL,
    -- The name in the audit of the person who added it.
    author text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, name),
    UNIQUE (app, installation),
    FOREIGN KEY (app, installation) REFERENCES installations ON UPDATE CASCADE ON DELETE CASCADE);

CREATE TABLE saved_filters (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    -- The page whose list it filters: pushes or devices.
    page text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- The values of the page's form: an object of strings.
    filter jsonb NOT NULL,
    author text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, page, name));
