-- oldest usable: 1
--
-- Support of `where` conditions: an index over the fields that apps add themselves, identities with
-- fields of their own, and functions that read LeanCloud's typed values without ever failing.

CREATE INDEX installations_fields ON installations USING gin (fields jsonb_path_ops);

CREATE TABLE identities (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    id text COLLATE "C" NOT NULL,
    fields jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, id));

CREATE INDEX identities_fields ON identities USING gin (fields jsonb_path_ops);

-- Milliseconds since 1970 of a typed Date, as `Instant(iso8601:)` reads it; NULL for
-- anything else.
CREATE FUNCTION carillon_instant(value jsonb) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $body$
DECLARE
    part text[];
    year int;
    month int;
    day int;
    days int;
    shift int := 0;
BEGIN
    IF jsonb_typeof(value) <> 'object' OR value->>'__type' IS DISTINCT FROM 'Date' THEN
        RETURN NULL;
    END IF;
    part := regexp_match(value->>'iso',
        '^([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})'
        '(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?(?:[Zz]|([+-])([0-9]{2}):?([0-9]{2}))$');
    IF part IS NULL THEN RETURN NULL; END IF;
    year := part[1]::int;
    month := part[2]::int;
    day := part[3]::int;
    IF year = 0 OR month NOT BETWEEN 1 AND 12 THEN RETURN NULL; END IF;
    days := CASE
        WHEN month IN (4, 6, 9, 11) THEN 30
        WHEN month <> 2 THEN 31
        WHEN year % 4 = 0 AND (year % 100 <> 0 OR year % 400 = 0) THEN 29
        ELSE 28 END;
    IF day NOT BETWEEN 1 AND days OR part[4]::int > 23 OR part[5]::int > 59
        OR part[6]::int > 60 OR part[9]::int > 23 OR part[10]::int > 59
    THEN
        RETURN NULL;
    END IF;
    IF part[8] IS NOT NULL THEN
        shift := (part[9]::int * 60 + part[10]::int)
            * CASE part[8] WHEN '-' THEN -1 ELSE 1 END;
    END IF;
    RETURN ((make_date(year, month, day) - date '1970-01-01')::bigint * 86400
        + part[4]::int * 3600 + (part[5]::int - shift) * 60
        + coalesce(part[6]::int, 0)) * 1000
        + coalesce(left(rpad(part[7], 3, '0'), 3)::int, 0);
END
$body$;

-- A typed GeoPoint as (longitude, latitude), to a billionth of a degree: so no product
-- of differences can underflow, which Postgres makes an error. NULL for anything else.
CREATE FUNCTION carillon_point(value jsonb) RETURNS point
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $body$
DECLARE
    latitude numeric;
    longitude numeric;
BEGIN
    IF jsonb_typeof(value) <> 'object'
        OR value->>'__type' IS DISTINCT FROM 'GeoPoint'
        OR jsonb_typeof(value->'latitude') IS DISTINCT FROM 'number'
        OR jsonb_typeof(value->'longitude') IS DISTINCT FROM 'number'
    THEN
        RETURN NULL;
    END IF;
    latitude := (value->'latitude')::numeric;
    longitude := (value->'longitude')::numeric;
    IF abs(latitude) > 90 OR abs(longitude) > 180 THEN RETURN NULL; END IF;
    RETURN point(round(longitude, 9)::float8, round(latitude, 9)::float8);
END
$body$;

-- The distance of two points on a sphere, in radians (the haversine formula).
CREATE FUNCTION carillon_arc(a point, b point) RETURNS float8
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $body$
DECLARE
    x float8 := sind((a[0] - b[0]) / 2);
    y float8 := sind((a[1] - b[1]) / 2);
BEGIN
    RETURN 2 * asin(least(1, sqrt(y * y + cosd(a[1]) * cosd(b[1]) * x * x)));
END
$body$;
