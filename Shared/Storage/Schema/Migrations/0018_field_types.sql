-- oldest usable: 1
--
-- Fields that are kept in columns of their own tell an absent one from 0 and from an empty list;
-- what was kept before is there, as it was shown. The types of the fields that apps add, and a
-- number that tells who knows them of a change.

ALTER TABLE installations
    ADD COLUMN channels_absent boolean NOT NULL DEFAULT false,
    ADD COLUMN badge_absent boolean NOT NULL DEFAULT false;

CREATE TABLE app_fields (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    class text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, class, name));

ALTER TABLE apps ADD COLUMN fields_version bigint NOT NULL DEFAULT 0;
