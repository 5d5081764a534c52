//! The `[telemetry]` table of `lastword.toml`: where the spans of the workspace's work go.

use std::path::{Path, PathBuf};

use lastword_server::Companion;
use lastword_server::trace::Traces;
use serde::Deserialize;

use crate::config::variable;
use crate::failure::Failure;
use crate::notify::{OWN_VARIABLES, private};

/// The members of `[telemetry]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TelemetryTable {
    /// The base address of the receiver.
    endpoint: String,
    /// The variable or the private file with headers: `name=value`, by commas or lines.
    headers_env: Option<String>,
    headers_file: Option<PathBuf>,
    /// The share of grants that are recorded.
    sample: Option<f64>,
    /// Whether texts are exported.
    #[serde(default)]
    include_text: bool,
    /// The directory of the file, to which paths are relative.
    #[serde(skip)]
    base: PathBuf,
}

impl TelemetryTable {
    /// Checks the table of a file in this directory, without reading its headers.
    pub(crate) fn checked(self, base: &Path) -> Result<Self, Failure> {
        let wrong = |what: &str| Err(Failure::usage(format!("[telemetry] {what}")));
        if !lastword_telemetry::is_endpoint(&self.endpoint) {
            return wrong("endpoint isn't an address: it is as in \"http://127.0.0.1:4318\"");
        }
        if self.sample.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return wrong("sample is from 0 to 1: the share of grants that are recorded");
        }
        if self.headers_env.is_some() && self.headers_file.is_some() {
            return wrong("has headers_env and headers_file: set one of them");
        }
        if self.headers_env.as_ref().is_some_and(|name| !name.starts_with(OWN_VARIABLES)) {
            return wrong("headers_env must begin with LASTWORD_, so that agents run by the server don't see it");
        }
        Ok(Self { base: base.to_owned(), ..self })
    }

    /// Returns how grants are traced.
    pub(crate) fn traces(&self) -> Traces {
        Traces { share: Some(self.sample.unwrap_or(1.0)) }
    }

    /// Returns the exporter, with its headers.
    pub(crate) fn companion(&self) -> Result<Companion, Failure> {
        let failed = |what: String| Failure::usage(format!("[telemetry] {what}"));
        let text = match (&self.headers_env, &self.headers_file) {
            (Some(name), _) => variable(name).ok_or_else(|| failed(format!("headers_env: {name} is not set")))?,
            (None, Some(file)) => private("headers_file", &self.base.join(file)).map_err(failed)?,
            (None, None) => String::new(),
        };
        let settings = lastword_telemetry::Settings {
            endpoint: self.endpoint.clone(),
            headers: lastword_telemetry::headers(&text).map_err(failed)?,
            include_text: self.include_text,
        };
        Ok(lastword_telemetry::companion(settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<TelemetryTable, String> {
        let table: TelemetryTable = toml::from_str(text).map_err(|error| error.to_string())?;
        table.checked(Path::new("/x")).map_err(|failure| failure.message)
    }

    #[test]
    fn a_table_that_makes_no_sense_is_refused_with_the_reason() {
        for (text, word) in [
            ("", "endpoint"),
            ("endpoint = \"127.0.0.1:4318\"", "http://127.0.0.1:4318"),
            ("endpoint = \"http://x?y=1\"", "http://127.0.0.1:4318"),
            ("endpoint = \"http://me:secret@x\"", "http://127.0.0.1:4318"),
            ("endpoint = \"http://x\"\nsample = 2", "from 0 to 1"),
            ("endpoint = \"http://x\"\nheaders_env = \"KEY\"", "LASTWORD_"),
            ("endpoint = \"http://x\"\nheaders_env = \"A\"\nheaders_file = \"b\"", "one of them"),
            ("endpoint = \"http://x\"\nnonsense = 1", "nonsense"),
        ] {
            let wrong = table(text).unwrap_err();
            assert!(wrong.contains(word), "{text}: {wrong}");
        }
        let good = table("endpoint = \"http://x\"\nsample = 0.5").unwrap();
        assert_eq!(good.traces(), Traces { share: Some(0.5) });
        assert!(good.companion().is_ok());
    }
}
