//! Rules for members that the schemas derived from the wire types don't contain: the forms of names, times and ids, and
//! which members belong together.
//!
//! Generators make a type of each schema. What is a rule and no type (which members belong together, which names are taken)
//! stands in [`ALSO`], where they don't see it.

use serde_json::{Map, Value, json};

const NAME: &str = "^[a-z0-9]([a-z0-9_.-]{0,62}[a-z0-9])?$";
const ADDRESS: &str = "^[@#]?[a-z0-9]([a-z0-9_.-]{0,62}[a-z0-9])?$";
const ONE: &str = "^#?[a-z0-9]([a-z0-9_.-]{0,62}[a-z0-9])?$";
const REF: &str = "^[A-Za-z0-9][A-Za-z0-9._/#:-]{0,127}$";
const REQUEST_ID: &str = r"^[!-Z\\^-~]{1,128}$";
const RESOURCE: &str = "^[!-)+-~]{0,127}[!-~]$";
const MESSAGE_ID: &str = "^msg-[0-9]{1,19}$";
const DIGEST: &str = "^[0-9A-Fa-f]{64}$";
const WAIT: &str = "^[0-9]{1,15}(ms|s|m)?$";
/// A date from 1971 on, leap days included, or a time on it.
const MOMENT: &str = concat!(
    "^((19(7[1-9]|[89][0-9])|[2-9][0-9]{3})-",
    "((0[13578]|1[02])-31|(0[13-9]|1[0-2])-(29|30)|(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8]))",
    "|(19(7[26]|8[048]|9[26])|[2-9][0-9](0[48]|[2468][048]|[13579][26]))-02-29)",
    r"([Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2}))?$",
);
/// The text form of a message (E1): a REQUEST has one recipient, a BROADCAST goes to all.
const TEXT: &str = concat!(
    r"^\[FROM:[a-z0-9]([a-z0-9_.-]{0,62}[a-z0-9])?\]",
    r"(\[TO:all\]\[TYPE:(RESPONSE|STATUS|ALERT|INFO|BROADCAST)\]",
    r"|\[TO:[@#]?[a-z0-9]([a-z0-9_.-]{0,62}[a-z0-9])?\]\[TYPE:(REQUEST|RESPONSE|STATUS|ALERT|INFO)\])",
    r"\[REF:[A-Za-z0-9][A-Za-z0-9._/#:-]{0,127}\]",
    r"\[DEPTH:([0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])\]",
);
const GRANT_ID: &str = "^grant-[0-9]{1,19}$";
const LIFT_ID: &str = "^lift-[1-9][0-9]{0,8}$";
/// Characters on one line, of which the first and the last are no spaces.
const MODEL: &str = r"^[^\s\x00-\x1f\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]{0,62}[^\s\x00-\x1f\x7f-\x9f])?$";
const NOT_BLANK: &str = r"\S";

/// The member of a schema with further schemas that a value satisfies, too, like `allOf`.
pub(crate) const ALSO: &str = "x-also";

/// The constraint on a member.
#[derive(Clone, Copy)]
enum Constraint {
    /// A text with this pattern; for a list, each of its items.
    Text(&'static str),
    /// A text with this pattern, other than these reserved names.
    Own(&'static str, &'static [&'static str]),
    /// A number up to this one.
    Max(u64),
    /// A number from this one on.
    Min(u64),
    /// A non-empty text in a format of its own, such as a cron expression.
    Format(&'static str),
}

/// The names that can't be registered.
const RESERVED: &[&str] = &lastword_facts::names::RESERVED;
/// The reserved names that can't be a recipient.
const NOBODY: &[&str] = &[lastword_facts::names::SYSTEM_NAME, lastword_facts::names::OWN_NAME];

/// The schema, the member and its constraint.
const MEMBERS: &[(&str, &str, Constraint)] = &[
    ("Envelope", "from", Constraint::Own(NAME, RESERVED)),
    ("NewToken", "expires_in_ms", Constraint::Min(1)),
    ("NewToken", "expires_in_ms", Constraint::Max(crate::calls::tokens::VALID_MS_MAX)),
    ("Envelope", "ref", Constraint::Text(REF)),
    ("Envelope", "depth", Constraint::Max(255)),
    ("Envelope", "request_id", Constraint::Text(REQUEST_ID)),
    ("Envelope", "action", Constraint::Text(NAME)),
    ("Envelope", "in_reply_to", Constraint::Text(MESSAGE_ID)),
    ("Envelope", "caused_by", Constraint::Text(MESSAGE_ID)),
    ("NewAgent", "name", Constraint::Own(NAME, RESERVED)),
    ("NewAgent", "actions", Constraint::Text(NAME)),
    ("NewAgent", "groups", Constraint::Text(NAME)),
    ("AgentPatch", "actions", Constraint::Text(NAME)),
    ("AgentPatch", "groups", Constraint::Text(NAME)),
    ("NewHuman", "name", Constraint::Own(NAME, RESERVED)),
    ("NewClaim", "resource", Constraint::Text(RESOURCE)),
    ("NewRoom", "name", Constraint::Text(REF)),
    ("NewRoom", "members", Constraint::Own(NAME, RESERVED)),
    ("Post", "body", Constraint::Text(NOT_BLANK)),
    ("Post", "mentions", Constraint::Own(NAME, RESERVED)),
    ("Post", "ref", Constraint::Text(REF)),
    ("Extend", "grant", Constraint::Text(GRANT_ID)),
    ("Extend", "rounds", Constraint::Max(10)),
    ("Extend", "cost_usd", Constraint::Min(0)),
    ("AgentGrant", "cost_usd", Constraint::Min(0)),
    ("NewSchedule", "name", Constraint::Text(NAME)),
    ("NewSchedule", "cron", Constraint::Format("cron")),
    ("NewSchedule", "time_zone", Constraint::Format("time-zone")),
    ("NewSchedule", "to", Constraint::Own(ONE, RESERVED)),
    ("NewSchedule", "body", Constraint::Text(NOT_BLANK)),
    ("NewSchedule", "ref", Constraint::Format("ref-template")),
    ("NewEscalation", "message", Constraint::Text(NOT_BLANK)),
    ("NewEscalation", "ref", Constraint::Text(REF)),
    ("EscalationAnswer", "lift", Constraint::Text(LIFT_ID)),
    ("ModelUsage", "model", Constraint::Text(MODEL)),
    ("HeldCall", "tool", Constraint::Text(NOT_BLANK)),
    ("DecideApproval", "digest", Constraint::Text(DIGEST)),
];

/// Adds the constraints to the schemas.
pub(crate) fn extend(schemas: &mut Map<String, Value>) {
    schemas.values_mut().for_each(flatten);
    for (schema, member, form) in MEMBERS {
        if let Some(found) = schemas.get_mut(*schema).and_then(|schema| member_of(schema, member)) {
            form.add(found);
        }
    }
    if let Some([one, many]) = schemas.get_mut("To").and_then(|to| to["oneOf"].as_array_mut()).map(Vec::as_mut_slice) {
        Constraint::Own(ADDRESS, NOBODY).add(one);
        Constraint::Own(ADDRESS, NOBODY).add(many);
        many["minItems"] = json!(1);
    }
    if let Some(mentions) = schemas.get_mut("Post").and_then(|post| member_of(post, "mentions")) {
        mentions["maxItems"] = json!(crate::calls::rooms::MENTIONS_MAX);
    }
    if let Some(models) = schemas.get_mut("Usage").and_then(|usage| member_of(usage, "models")) {
        models["maxItems"] = json!(lastword_wire::MODELS_MAX);
    }
    if let Some(scopes) = schemas.get_mut("NewToken").and_then(|token| member_of(token, "scopes")) {
        scopes["minItems"] = json!(1);
    }
    for (name, rule) in [
        ("Envelope", addressed()),
        ("DecideApproval", json!({ "anyOf": decided() })),
        ("EscalationAnswer", json!({ "anyOf": answered() })),
        ("AgentGrant", json!({ "anyOf": given() })),
        ("AgentPatch", json!({ "anyOf": patched() })),
    ] {
        if let Some(schema) = schemas.get_mut(name) {
            schema[ALSO] = json!([rule]);
        }
    }
    if let Some(limits) = schemas.get_mut("AgentPatch").and_then(|patch| member_of(patch, "limits")) {
        limits["propertyNames"] = json!({ "enum": lastword_facts::fact::AgentLimits::NAMES });
    }
    schemas.values_mut().for_each(unsigned);
}

/// Makes one object of a schema that is composed of its members and of any others.
fn flatten(schema: &mut Value) {
    let parts = schema.get_mut("allOf").and_then(Value::as_array_mut);
    let Some([others, Value::Object(members)]) = parts.map(Vec::as_mut_slice) else { return };
    if others["type"] != "object" || others.get("properties").is_some() {
        return;
    }
    let mut whole = std::mem::take(members);
    whole.insert("additionalProperties".to_owned(), json!({ "description": others["description"] }));
    whole.insert("description".to_owned(), schema["description"].clone());
    *schema = Value::Object(whole);
}

/// Requires the new arguments with the decision `edit`.
fn decided() -> Value {
    json!([
        { "properties": { "decision": { "enum": ["approve", "reject", "respond", "ignore"] } } },
        {
            "required": ["input"],
            "properties": { "decision": { "const": "edit" }, "input": { "not": { "type": "null" } } },
        },
    ])
}

/// Requires a text or a lift in an answer.
fn answered() -> Value {
    json!([
        { "required": ["answer"], "properties": { "answer": { "pattern": NOT_BLANK } } },
        { "required": ["lift"], "properties": { "lift": { "type": "string" } } },
    ])
}

/// Requires at least one change in a patch.
fn patched() -> Value {
    let members = ["actions", "groups", "turns_max", "limits", "display_name"];
    members
        .map(|member| json!({ "required": [member], "properties": { member: { "not": { "type": "null" } } } }))
        .into()
}

/// Requires a positive amount in a grant, at least a millionth of a dollar.
fn given() -> Value {
    json!([
        { "required": ["tokens"], "properties": { "tokens": { "minimum": 1 } } },
        { "required": ["cost_usd"], "properties": { "cost_usd": { "minimum": 0.000_001 } } },
    ])
}

/// Corrects the range of whole numbers, which go up to the largest of 64 bits, not of 63.
fn unsigned(schema: &mut Value) {
    if schema["format"] == "int64" && schema["minimum"].is_u64() {
        schema["format"] = json!("uint64");
        if schema["maximum"].is_null() {
            schema["maximum"] = json!(u64::MAX);
        }
    }
    match schema {
        Value::Object(members) => members.values_mut().for_each(unsigned),
        Value::Array(items) => items.iter_mut().for_each(unsigned),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Requires a recipient, `all`, or none, depending on the message's type.
fn addressed() -> Value {
    let types = |types: &[&str]| json!({ "enum": types });
    json!({ "anyOf": [
        {
            "required": ["to"],
            "properties": {
                "type": types(&["request", "response", "status", "alert", "info"]),
                "to": { "type": ["string", "array"], "not": { "const": "all" } },
            },
        },
        {
            "required": ["to"],
            "properties": { "type": types(&["response", "status", "alert", "info", "broadcast"]), "to": { "const": "all" } },
        },
        { "properties": { "type": types(&["response", "status", "broadcast"]), "to": { "type": "null" } } },
    ] })
}

/// Returns the member of a schema, or of one of the parts that it is composed of.
fn member_of<'a>(schema: &'a mut Value, member: &str) -> Option<&'a mut Value> {
    if schema.get("properties").is_some() {
        return schema["properties"].get_mut(member);
    }
    schema.get_mut("allOf")?.as_array_mut()?.iter_mut().find_map(|part| member_of(part, member))
}

impl Constraint {
    fn add(self, schema: &mut Value) {
        let schema = if schema.get("items").is_some() { &mut schema["items"] } else { schema };
        match self {
            Self::Text(pattern) => schema["pattern"] = json!(pattern),
            Self::Own(pattern, taken) => {
                schema["pattern"] = json!(pattern);
                schema[ALSO] = json!([{ "not": { "enum": taken } }]);
            }
            Self::Max(most) => schema["maximum"] = json!(most),
            Self::Min(least) => schema["minimum"] = json!(least),
            Self::Format(format) => {
                schema["format"] = json!(format);
                schema["minLength"] = json!(1);
            }
        }
    }
}

/// Returns the schema of a call's parameter.
pub(crate) fn parameter(path: &str, name: &str) -> Value {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    match name {
        "depth" => json!({ "type": "integer", "minimum": 0, "maximum": 255 }),
        "until" if path == "/events" => {
            json!({ "type": "integer", "format": "uint64", "minimum": 0, "maximum": u64::MAX })
        }
        "limit" | "after" | "at" => json!({ "type": "integer", "format": "uint64", "minimum": 0, "maximum": u64::MAX }),
        "wait" => text(WAIT),
        "return" => json!({ "type": "string", "enum": ["representation", "minimal"] }),
        "since" | "until" => text(MOMENT),
        "type" => json!({ "$ref": "#/components/schemas/MessageType" }),
        "cursor" if path == "/messages" => text("^[0-9]{1,19}$"),
        "cursor" if path == "/escalations" => text("^esc-[0-9]{1,9}$"),
        "cursor" if path == "/approvals" => text("^apr-[0-9]{1,9}$"),
        "cursor" => text("^conv-[0-9]{1,9}$"),
        "open" | "turns" => json!({ "type": "boolean" }),
        "Idempotency-Key" => text(REQUEST_ID),
        _ => json!({ "type": "string" }),
    }
}

/// Returns the schema of a message in the text form.
pub(super) fn text() -> Value {
    json!({ "type": "string", "pattern": TEXT })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_that_has_a_form_is_there() {
        let mut schemas = super::super::openapi::schemas();
        for (schema, member, _) in MEMBERS {
            let found = schemas.get_mut(*schema).and_then(|schema| member_of(schema, member));
            assert!(found.is_some(), "{schema}.{member}");
        }
    }
}
