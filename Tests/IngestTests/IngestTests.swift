import Ingest
import Testing

@Suite struct IngestTests {}
