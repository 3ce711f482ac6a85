import JSONSchema
import Testing

@Suite struct ObjectSchemaTests {}
