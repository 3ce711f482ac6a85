-- oldest usable: 1
--
-- Erasures that were cut short are finished by the maintenance loop: when each was last worked at,
-- and who wanted it.

ALTER TABLE erasures
    ADD COLUMN touched_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN wanted_by jsonb NOT NULL DEFAULT '{}';
