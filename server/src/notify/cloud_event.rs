//! A notification in the form that its webhook wants: as it is, or as a CloudEvent 1.0.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

use super::channel::Format;
use super::words::Notification;

/// The source of an event whose console has no known address.
const SOURCE: &str = "urn:lastword";
const JSON: &str = "application/json";

/// Returns the headers and the body of a notification.
pub(super) fn formed(format: Format, told: &Notification) -> Result<(HeaderMap, Vec<u8>), String> {
    let attributes = [
        ("specversion", "1.0"),
        ("id", &told.id),
        ("source", told.console.as_deref().unwrap_or(SOURCE)),
        ("type", told.kind.event_type()),
        ("subject", &told.channel),
        ("time", &told.at),
    ];
    let mut headers = HeaderMap::new();
    let body = match format {
        Format::Lastword => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
            told.json()?
        }
        Format::Cloudevents => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/cloudevents+json"));
            let named = attributes.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value)));
            let mut event: Map<String, Value> = named.collect();
            event.insert("datacontenttype".to_owned(), json!(JSON));
            let data: Value = serde_json::from_slice(&told.json()?).map_err(|error| error.to_string())?;
            event.insert("data".to_owned(), data);
            Value::Object(event).to_string().into_bytes()
        }
        Format::CloudeventsBinary => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
            for (name, value) in attributes {
                let name = HeaderName::try_from(format!("ce-{name}")).map_err(|error| error.to_string())?;
                headers.insert(name, HeaderValue::from_str(value).map_err(|error| error.to_string())?);
            }
            told.json()?
        }
    };
    Ok((headers, body))
}

#[cfg(test)]
mod tests {
    use lastword_facts::Time;

    use super::super::channel::{Command, Means, channel};
    use super::*;

    #[test]
    fn an_event_has_the_attributes_and_the_notification_as_its_data() {
        let means = Means::Command(Command { program: "true".into(), args: Vec::new(), cwd: ".".into() });
        let told = Notification::test("ntf-1".into(), &channel(means), Time(1_700_000_000_999));
        let (headers, body) = formed(Format::Cloudevents, &told).unwrap();
        assert_eq!(headers[CONTENT_TYPE], "application/cloudevents+json");
        let event: Value = serde_json::from_slice(&body).unwrap();
        let plain: Value = serde_json::from_slice(&told.json().unwrap()).unwrap();
        assert_eq!(
            event,
            json!({
                "specversion": "1.0", "id": "ntf-1", "source": "urn:lastword", "type": "lastword.notification.test",
                "subject": "desk", "time": "2023-11-14T22:13:20.999Z", "datacontenttype": "application/json",
                "data": plain,
            })
        );
        let (headers, body) = formed(Format::CloudeventsBinary, &told).unwrap();
        for (name, value) in [("ce-id", "ntf-1"), ("ce-specversion", "1.0"), ("content-type", JSON)] {
            assert_eq!(headers[name], value);
        }
        assert_eq!(body, told.json().unwrap());
    }
}
