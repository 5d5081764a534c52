//! A notification in the form that its webhook wants: as it is, or as a CloudEvent 1.0.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::channel::Format;
use super::words::Notification;
use crate::cloud_event::{Attributes, JSON, SOURCE, STRUCTURED};

/// Returns the headers and the body of a notification.
pub(super) fn formed(format: Format, told: &Notification) -> Result<(HeaderMap, Vec<u8>), String> {
    let attributes = Attributes {
        id: &told.id,
        source: told.console.as_deref().unwrap_or(SOURCE),
        kind: told.kind.event_type(),
        subject: Some(&told.channel),
        time: &told.at,
    };
    let (mut headers, mut body) = (HeaderMap::new(), told.json()?);
    let mut media = JSON;
    match format {
        Format::Lastword => {}
        Format::Cloudevents => {
            media = STRUCTURED;
            let data = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
            body = attributes.structured(data).to_string().into_bytes();
        }
        Format::CloudeventsBinary => {
            for (name, value) in attributes.named() {
                let name = HeaderName::try_from(format!("ce-{name}")).map_err(|error| error.to_string())?;
                headers.insert(name, HeaderValue::from_str(value).map_err(|error| error.to_string())?);
            }
        }
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    Ok((headers, body))
}

#[cfg(test)]
mod tests {
    use lastword_facts::Time;
    use serde_json::{Value, json};

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
