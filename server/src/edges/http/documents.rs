//! The documents of the surface, made from the table of calls by tests.

/// The OpenAPI 3.1 document of the surface.
pub const OPENAPI: &str = include_str!(concat!(env!("OUT_DIR"), "/openapi.json"));
/// The AsyncAPI 3 document of sessions.
pub const ASYNCAPI: &str = include_str!(concat!(env!("OUT_DIR"), "/asyncapi.json"));
/// The JSON Schema of a message.
pub const MESSAGE_SCHEMA: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/message.schema.json"));
