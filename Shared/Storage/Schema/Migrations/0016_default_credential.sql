-- oldest usable: 1
--
-- Of an app's APNs credentials, the one whose topic is meant where nobody names any.

ALTER TABLE credentials ADD COLUMN is_default boolean NOT NULL DEFAULT false;

UPDATE credentials c SET is_default = true
WHERE NOT EXISTS (SELECT FROM credentials o
    WHERE o.app = c.app AND o.provider = c.provider AND o.name <> c.name);
