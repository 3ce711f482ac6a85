/// The OIDs that the code distinguishes; from Postgres' `pg_type.dat`, where they are fixed.
enum TypeOID {
    static let boolean: UInt32 = 16
    static let bytea: UInt32 = 17
    static let name: UInt32 = 19
    static let bigint: UInt32 = 20
    static let smallint: UInt32 = 21
    static let integer: UInt32 = 23
    static let text: UInt32 = 25
    static let json: UInt32 = 114
    static let real: UInt32 = 700
    static let double: UInt32 = 701
    static let jsonArray: UInt32 = 199
    static let booleanArray: UInt32 = 1000
    static let byteaArray: UInt32 = 1001
    static let integerArray: UInt32 = 1007
    static let textArray: UInt32 = 1009
    static let bigintArray: UInt32 = 1016
    static let doubleArray: UInt32 = 1022
    static let varchar: UInt32 = 1043
    static let date: UInt32 = 1082
    static let timestamp: UInt32 = 1114
    static let timestamptz: UInt32 = 1184
    static let timestamptzArray: UInt32 = 1185
    static let uuid: UInt32 = 2950
    static let uuidArray: UInt32 = 2951
    static let jsonb: UInt32 = 3802
}
