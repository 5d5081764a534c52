//! Protects against requests from other sites in a browser: an allow-list of hosts against DNS rebinding, and requests
//! from the same origin only.

use std::net::IpAddr;

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

/// The host names under which the server may be called. Literal addresses and `localhost` are always allowed, because
/// DNS can't rebind them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    hosts: Vec<String>,
}

impl Origins {
    /// Allows these host names in addition.
    #[must_use]
    pub(crate) fn new(hosts: &[String]) -> Self {
        Self { hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect() }
    }

    /// Admits a request with these headers, or returns why not.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let host = only(headers, &HOST)?.ok_or("there is no Host header")?;
        if !self.knows(host) {
            return Err("the Host header names none of this server's hosts");
        }
        // Only browsers send an Origin; a program has none to check.
        match only(headers, &ORIGIN)? {
            None => Ok(()),
            Some(origin) if same_host(origin, host) => Ok(()),
            Some(_) => Err("the Origin header names another site"),
        }
    }

    fn knows(&self, host: &str) -> bool {
        let name = without_port(host).to_ascii_lowercase();
        let literal = name.trim_start_matches('[').trim_end_matches(']');
        literal.parse::<IpAddr>().is_ok()
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.hosts.contains(&name)
    }
}

fn same_host(origin: &str, host: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') => &host[..colon],
        Some(_) | None => host,
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &axum::http::HeaderName) -> Result<Option<&'a str>, &'static str> {
    // A header sent twice could mean one thing to a proxy and another to this check.
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.to_str().map_err(|_| "a header is not ASCII")).transpose()?;
    if values.next().is_some() { Err("a header stands twice") } else { Ok(first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(axum::http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        map
    }

    #[test]
    fn foreign_hosts_and_origins_are_refused() {
        let origins = Origins::new(&["broker.example".to_owned()]);
        for good in [
            &[("host", "127.0.0.1:7171")][..],
            &[("host", "[::1]:7171")],
            &[("host", "localhost")],
            &[("host", "Broker.example:80")],
            &[("host", "localhost:1"), ("origin", "http://localhost:1")],
        ] {
            assert_eq!(origins.admits(&headers(good)), Ok(()), "{good:?}");
        }
        for bad in [
            &[][..],
            &[("host", "evil.example")],
            &[("host", "localhost.evil.example")],
            &[("host", "localhost:1"), ("origin", "null")],
            &[("host", "localhost:1"), ("origin", "http://localhost:2")],
            &[("host", "localhost:1"), ("origin", "http://localhost:1"), ("origin", "http://evil")],
            &[("host", "localhost"), ("host", "evil.example")],
        ] {
            assert!(origins.admits(&headers(bad)).is_err(), "{bad:?}");
        }
    }
}
