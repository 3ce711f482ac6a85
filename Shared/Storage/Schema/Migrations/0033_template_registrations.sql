-- oldest usable: 1
--
-- Registrations of Azure's older model are installations. Those for template sends only share their
-- channel with others, so their token has no hash, which is unique; they are found by this index.
--
-- A service of the version before sends them what it sends to every installation.

ALTER TABLE installations ADD COLUMN template_only boolean NOT NULL DEFAULT false;

-- What was stored holds it: a scan under the table's lock would say nothing new.
ALTER TABLE installations DROP CONSTRAINT installations_check,
    ADD CONSTRAINT installations_token_hash_check
        CHECK ((token_hash IS NULL) = (token IS NULL OR template_only)) NOT VALID;

CREATE INDEX installations_template_token
    ON installations (app, hashtextextended(token, 0))
    WHERE template_only AND token IS NOT NULL;
