-- oldest usable: 1
--
-- A time that a view shows is any that intake accepts, and reading one never fails.
--
-- The views stay as they are: they call this function. A version before reads by it, too.

-- RFC 3339 alone, whatever `DateStyle` is. Most times are cast, as they are of a form that
-- never fails. The others are reckoned: leap seconds (with a fraction, too, they are the
-- second after), 29 February, the year 0000, offsets from 16 hours, and long fractions.
CREATE OR REPLACE FUNCTION carillon_timestamptz(value jsonb) RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
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
$$;
