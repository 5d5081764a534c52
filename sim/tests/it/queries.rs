//! The queries of `examples/telemetry` name metrics and labels that the server has: those of `docs/metrics.md` and
//! `docs/telemetry.md`, which tests compare with what is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the metrics of the pages, each with its labels. A histogram has three names.
fn metrics() -> BTreeMap<String, BTreeSet<String>> {
    let mut metrics = BTreeMap::new();
    let pages = read("docs/metrics.md") + &read("docs/telemetry.md");
    for row in pages.lines().filter(|line| line.starts_with("| `lastword_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, labels, kind, ..] = cells[..] else { panic!("{row}") };
        let name = name.trim_matches('`');
        let labels: BTreeSet<String> = words(labels).into_iter().collect();
        let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        metrics.extend(suffixes.iter().map(|suffix| (format!("{name}{suffix}"), labels.clone())));
    }
    metrics
}

fn words(text: &str) -> Vec<String> {
    let split = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    split.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Returns the texts between two marks.
fn between<'a>(text: &'a str, from: &'a str, to: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(from).skip(1).filter_map(move |rest| Some(rest.split_once(to)?.0))
}

/// Checks a query, and the text that is shown for each of its series.
fn check(metrics: &BTreeMap<String, BTreeSet<String>>, query: &str, shown: &str) {
    let named: Vec<String> = words(query).into_iter().filter(|word| word.starts_with("lastword_")).collect();
    assert!(!named.is_empty(), "{query}");
    let mut labels = BTreeSet::new();
    for metric in named {
        labels.extend(metrics.get(&metric).unwrap_or_else(|| panic!("no metric {metric}: {query}")).clone());
    }
    let grouped = between(query, "by (", ")").flat_map(words);
    let matched =
        between(query, "{", "}").flat_map(|of| of.split(',')).filter_map(|of| Some(of.split_once('=')?.0.trim()));
    let templates = between(shown, "{{", "}}").map(|label| label.trim().trim_start_matches("$labels."));
    for label in grouped.chain(matched.chain(templates).map(str::to_owned)) {
        assert!(labels.contains(&label), "no label {label}: {query} {shown}");
    }
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_the_server_has() {
    let metrics = metrics();
    assert!(metrics.len() > 15, "{metrics:?}");
    let dashboard: Value = serde_json::from_str(&read("examples/telemetry/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets: Vec<&Value> = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()).collect();
    assert!(targets.len() > 10);
    for target in targets {
        check(&metrics, target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
    }
    let alerts = read("examples/telemetry/alerts.yml");
    let rules: Vec<&str> = alerts.split("- alert: ").skip(1).collect();
    assert!(rules.len() > 4);
    for rule in rules {
        let line = |key: &str| rule.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap_or_default();
        check(&metrics, line("expr: "), line("summary: "));
    }
}
