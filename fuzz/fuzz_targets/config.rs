//! `lastword.toml`: see `cli/src/config_property.rs`. The program is no library, so its modules are compiled again.
#![no_main]
#![allow(dead_code, reason = "only the configuration is used")]

#[path = "../../cli/src/agent_variables.rs"]
mod agent_variables;
#[path = "../../cli/src/config.rs"]
mod config;
#[path = "../../cli/src/config_file.rs"]
mod config_file;
#[path = "../../cli/src/config_property.rs"]
mod config_property;
#[path = "../../cli/src/environment.rs"]
mod environment;
#[path = "../../cli/src/failure.rs"]
mod failure;
#[path = "../../cli/src/notify.rs"]
mod notify;
#[path = "../../cli/src/oidc.rs"]
mod oidc;
#[path = "../../cli/src/out.rs"]
mod out;
#[path = "../../cli/src/policy.rs"]
mod policy;
#[path = "../../cli/src/quantity.rs"]
mod quantity;
#[path = "../../cli/src/team.rs"]
mod team;
#[path = "../../cli/src/telemetry.rs"]
mod telemetry;
#[path = "../../cli/src/text_file.rs"]
mod text_file;
#[path = "../../cli/src/tls.rs"]
mod tls;
#[path = "../../cli/src/token_source.rs"]
mod token_source;

libfuzzer_sys::fuzz_target!(|data: &[u8]| config_property::check(data));
