import JSON

/// Ten thousand installations, the users that some of them belong to, and every condition that
/// LeanCloud's push guide and its reference have an example of.
enum GuideData {
    static func identities() -> [JSONObject] {
        (0..<500).map { index in
            // Some are at the place, some around it, most far away.
            let away = index % 5 == 0 ? Double(index % 50) * 0.001 : Double(index % 80)
            return [
                "objectId": .string("user\(index)"),
                "createdAt": ["__type": "Date", "iso": "2013-01-01T00:00:00.000Z"],
                "level": .integer(Int64(index % 10)),
                "city": .string("city\(index % 7)"),
                "location": [
                    "__type": "GeoPoint", "latitude": .double(30 + away / 2),
                    "longitude": .double(-20 + away),
                ],
            ]
        }
    }

    static let installations = """
        insert into installations (app, object_id, device_type, provider, token, token_hash,
            installation_id, time_zone, device_profile, channels, badge, valid, fields, created_at,
            updated_at)
        select 'shop', lpad(to_hex(i), 24, '0'), case i % 2 when 0 then 'ios' else 'android' end,
            case i % 2 when 0 then 'apns' else 'fcm' end, token,
            sha256(convert_to(token, 'UTF8')),
            case i % 3 when 0 then '57234d4c-752f-4e78-81ad-' || lpad(i::text, 12, '0') end,
            case i % 4 when 0 then 'Asia/Shanghai' end, case i % 9 when 0 then 'dev' end,
            (array['{}', '{public}', '{private,public}', '{republican}', '{Giants,Mets}',
                '{suitcaseOwners,Giants}'])[i / 2 % 6 + 1]::text[], i % 5, i % 11 <> 0,
            jsonb_strip_nulls(jsonb_build_object(
                'injuryReports', case i % 7 when 0 then true when 1 then false end,
                'scores', case when i % 5 < 2 then i % 5 = 0 end,
                'gameResults', i % 13 = 0,
                'age', case when i % 10 < 9 then i % 80 end,
                'price', (i % 1000) * 0.25,
                'name', (array['Ann', 'ann', 'Bob.1', 'Bobx1', 'Zoë', '日本', 'a\\b'])[i % 7 + 1],
                'tags', to_jsonb((array['{}', '{a}', '{a,b}', '{b,c}', '{a,b,c}'])
                    [i % 5 + 1]::text[]),
                'nums', case i % 3 when 0 then jsonb_build_array(i % 5, i % 8) end,
                'profile', jsonb_build_object('vip', i % 17 = 0, 'plan', 'plan' || i % 4),
                'city', 'city' || i % 9,
                'birthday', jsonb_build_object('__type', 'Date', 'iso', to_char(
                    '1990-01-01Z'::timestamptz + i * interval '1 day',
                    'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')),
                'here', case when i % 4 = 0 then jsonb_build_object('__type', 'GeoPoint',
                    'latitude', 39.9 + (i % 100) * 0.01, 'longitude', 116.3 + (i % 90) * 0.01) end,
                'owner', case when i % 2 = 0 then jsonb_build_object('__type', 'Pointer',
                    'className', '_User', 'objectId', 'user' || i / 2 % 600) end,
                'user', case when i % 3 = 0 then jsonb_build_object('__type', 'Pointer',
                    'className', '_User', 'objectId', 'user' || i % 500) end))
            || case i % 19 when 0 then '{"nothing": null}'::jsonb else '{}' end,
            '2013-01-01Z'::timestamptz + i * interval '30 minutes',
            '2013-01-01Z'::timestamptz + i * interval '1 hour'
        from (select i, case when i % 8 <> 0 then 'token-' || i end as token
            from generate_series(1, 10000) i) made
        """

    private static let place =
        #"{"__type": "GeoPoint", "latitude": 30.0, "longitude": -20.0}"#
    private static let beijing =
        #"{"__type": "GeoPoint", "latitude": 39.99, "longitude": 116.31}"#

    static let conditions: [String] = [
        // The guide's own requests.
        #"{"channels": {"$regex": "\\Qpublic\\E"}}"#,
        #"{"installationId": "57234d4c-752f-4e78-81ad-000000000003"}"#,
        #"{"updatedAt": {"$lt": {"__type": "Date", "iso": "2013-06-29T11:33:53.323Z"}}}"#,
        #"{"injuryReports": true}"#,
        """
        {"owner": {"$inQuery": {"location": {"$nearSphere": \(place),
            "$maxDistanceInMiles": 1.0}}}}
        """,
        // The requests that its code samples become in the clients.
        #"{"channels": "Giants", "scores": true}"#,
        """
        {"user": {"$inQuery": {"className": "_User", "where": {"location": {"$nearSphere": \(place),
            "$maxDistanceInMiles": 1}}}}}
        """,
        #"{"channels": "suitcaseOwners", "deviceType": "android"}"#,
        #"{"channels": "suitcaseOwners", "deviceType": "ios"}"#,
        #"{"channels": "public"}"#, #"{"gameResults": true}"#,
        // The rows of our own guide.
        #"[{"age": {"$gt": 20}}, {"deviceType": "ios"}]"#, #"{"profile.vip": true}"#,
        #"{"profile": {"vip": true, "plan": "plan0"}}"#, #"{"age": 7}"#, #"{"name": "Ann"}"#,
        #"{"nothing": null, "age": {"$lt": 3}}"#, #"{"age": null}"#,
        #"{"owner": {"__type": "Pointer", "className": "_User", "objectId": "user42"}}"#,
        #"{"age": {"$lt": 10}}"#, #"{"age": {"$gte": 10, "$lte": 12.5}}"#,
        #"{"price": {"$gt": 249}}"#, #"{"age": {"$ne": 3}}"#, #"{"name": {"$lt": "Bob"}}"#,
        #"{"birthday": {"$gte": {"__type": "Date", "iso": "2017-03-01T08:00:00+08:00"}}}"#,
        #"{"createdAt": {"$gte": {"__type": "Date", "iso": "2013-07-01T00:00:00.000Z"}}}"#,
        #"{"createdAt": {"$gt": "2013-07-01T00:00:00.000Z"}}"#,
        #"{"age": {"$in": [1, 2, 3]}}"#, #"{"age": {"$nin": [1, 2, 3]}}"#,
        #"{"channels": {"$in": ["Mets", "Giants", "private", "public"]}}"#,
        #"{"channels": {"$in": ["Mets", "public"]}}"#, #"{"channels": {"$nin": ["Mets"]}}"#,
        #"{"channels": {"$ne": "public"}}"#, #"{"channels": ["public"]}"#,
        #"{"tags": {"$all": ["a", "b"]}}"#, #"{"channels": {"$all": ["Giants", "Mets"]}}"#,
        #"{"tags": {"$all": [{"$regex": "^\\Qa\\E"}, {"$regex": "^\\Qc\\E"}]}}"#,
        #"{"tags": "b"}"#, #"{"tags": ["a", "b"]}"#, #"{"tags": {"$size": 2}}"#,
        #"{"channels": {"$size": 0}}"#, #"{"nums": 3}"#, #"{"nums": {"$gt": 4}}"#,
        #"{"age": {"$exists": false}}"#, #"{"owner": {"$exists": true}}"#,
        #"{"name": {"$regex": "^\\Qa\\E", "$options": "i"}}"#,
        #"{"name": {"$regex": "\\QBob.\\E"}}"#, #"{"name": {"$regex": "^\\Qa\\b\\E$"}}"#,
        #"{"name": {"$regex": "o.\\W?1$"}}"#, #"{"name": {"$regex": "ë|本"}}"#,
        #"{"$or": [{"age": {"$lt": 5}}, {"profile.plan": "plan3"}]}"#,
        #"{"$and": [{"age": {"$lt": 50}}, {"$or": [{"tags": "c"}, {"scores": true}]}]}"#,
        #"{"$nor": [{"age": {"$lt": 50}}, {"tags": "c"}]}"#,
        #"{"owner": {"$inQuery": {"className": "_User", "where": {"level": 3}}}}"#,
        """
        {"owner": {"$inQuery": {"className": "_User", "where": {"level": {"$gt": 3}}, "limit": 20,
            "order": "-level", "skip": 5}}}
        """,
        #"{"owner": {"$notInQuery": {"className": "_User", "where": {"level": 3}}}}"#,
        #"{"owner": {"$notInQuery": {"level": {"$lt": 8}}}}"#,
        """
        {"city": {"$select": {"key": "city", "query": {"className": "_User",
            "where": {"level": 2}, "limit": 3}}}}
        """,
        """
        {"city": {"$dontSelect": {"key": "city", "query": {"className": "_User",
            "where": {"level": 2}, "limit": 3}}}}
        """,
        #"{"here": {"$nearSphere": \#(beijing), "$maxDistanceInKilometers": 10}}"#,
        #"{"here": {"$nearSphere": \#(beijing), "$maxDistance": 0.003}}"#,
        #"{"here": {"$nearSphere": \#(beijing), "$maxDistanceInRadians": 0.004}}"#,
        #"{"here": {"$nearSphere": \#(beijing)}}"#,
        """
        {"here": {"$within": {"$box": [
            {"__type": "GeoPoint", "latitude": 39.9, "longitude": 116.3},
            {"__type": "GeoPoint", "latitude": 40.1, "longitude": 116.6}]}}}
        """,
        #"{"here": {"$geoWithin": {"$centerSphere": [[116.31, 39.99], 0.002]}}}"#,
        #"{"tags": {"$containedBy": ["a", "b"]}}"#, #"{"timeZone": "Asia/Shanghai"}"#,
        #"{"deviceProfile": "dev"}"#, #"{"badge": {"$gt": 2}}"#, #"{"valid": true}"#,
    ]
}
