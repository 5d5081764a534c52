//! The `[telemetry]` table of `lastword.toml`: where the spans of the workspace's work go.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lastword_server::Companion;
use lastword_server::trace::{TRACE_PLACE, Traces};
use lastword_telemetry::{ExportSettings, Signal};
use serde::Deserialize;

use crate::environment::variable;
use crate::failure::Failure;
use crate::notify::{OWN_VARIABLES, private};

/// The time between two exports of metrics.
const METRICS_EVERY: Duration = Duration::from_mins(1);

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
    /// What is exported, by name.
    signals: Option<Vec<String>>,
    /// The address of a trace in the receiver's pages.
    trace_url: Option<String>,
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
        let leads =
            |url: &String| url.contains(TRACE_PLACE) && (url.starts_with("https://") || url.starts_with("http://"));
        if self.trace_url.as_ref().is_some_and(|url| !leads(url)) {
            return wrong("trace_url is an address with {trace} in it, as in \"https://jaeger.example/trace/{trace}\"");
        }
        if self.headers_env.is_some() && self.headers_file.is_some() {
            return wrong("has headers_env and headers_file: set one of them");
        }
        if self.headers_env.as_ref().is_some_and(|name| !name.starts_with(OWN_VARIABLES)) {
            return wrong("headers_env must begin with LASTWORD_, so that agents run by the server don't see it");
        }
        if let Err(unknown) = self.signals() {
            return wrong(&format!("signals has {unknown:?}: they are \"traces\", \"metrics\" and \"logs\""));
        }
        Ok(Self { base: base.to_owned(), ..self })
    }

    /// Returns what is exported, or the name of what nothing is.
    fn signals(&self) -> Result<Vec<Signal>, String> {
        let Some(named) = &self.signals else { return Ok(Signal::ALL.to_vec()) };
        let known =
            |name: &String| Signal::ALL.into_iter().find(|signal| signal.to_string() == *name).ok_or(name.clone());
        named.iter().map(known).collect()
    }

    /// Returns whether the server's log is exported.
    pub(crate) fn exports_logs(&self) -> bool {
        self.signals().is_ok_and(|signals| signals.contains(&Signal::Logs))
    }

    /// Returns how grants are traced.
    pub(crate) fn traces(&self) -> Traces {
        let exports = self.signals().is_ok_and(|signals| signals.contains(&Signal::Traces));
        Traces { share: exports.then(|| self.sample.unwrap_or(1.0)), address: self.trace_url.clone() }
    }

    /// Returns the exporter, with its headers.
    pub(crate) fn companion(&self) -> Result<Companion, Failure> {
        Ok(lastword_telemetry::companion(self.exporter()?))
    }

    /// Asks the receiver whether it takes what is exported.
    pub(crate) async fn check(&self) -> Result<String, String> {
        let settings = self.exporter().map_err(|failure| failure.message)?;
        lastword_telemetry::check(settings).await.map(|()| self.endpoint.clone())
    }

    fn exporter(&self) -> Result<ExportSettings, Failure> {
        let failed = |what: String| Failure::usage(format!("[telemetry] {what}"));
        let text = match (&self.headers_env, &self.headers_file) {
            (Some(name), _) => variable(name).ok_or_else(|| failed(format!("headers_env: {name} is not set")))?,
            (None, Some(file)) => private("headers_file", &self.base.join(file)).map_err(failed)?,
            (None, None) => String::new(),
        };
        Ok(ExportSettings {
            endpoint: self.endpoint.clone(),
            headers: lastword_telemetry::headers(&text).map_err(failed)?,
            signals: self.signals().unwrap_or_default(),
            metrics_every: METRICS_EVERY,
            include_text: self.include_text,
        })
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
            ("endpoint = \"http://x\"\nsignals = [\"spans\"]", "\"traces\", \"metrics\" and \"logs\""),
            ("endpoint = \"http://x\"\ntrace_url = \"https://y\"", "{trace}"),
            ("endpoint = \"http://x\"\ntrace_url = \"javascript:{trace}\"", "https://"),
            ("endpoint = \"http://x\"\nnonsense = 1", "nonsense"),
        ] {
            let wrong = table(text).unwrap_err();
            assert!(wrong.contains(word), "{text}: {wrong}");
        }
        let good = table("endpoint = \"http://x\"\nsample = 0.5").unwrap();
        assert_eq!(good.traces(), Traces { share: Some(0.5), address: None });
        assert!(good.companion().is_ok() && good.exports_logs());
        let logs = table("endpoint = \"http://x\"\nsignals = [\"logs\"]").unwrap();
        assert_eq!((logs.traces(), logs.exports_logs()), (Traces::default(), true));
    }
}
